"""Random requests to real daemons, whose answers must not depend on how they are taken."""
