"""The health checks in the records of apps: carrying them out, counting failures."""
