"""The containers of apps: what is written on them, and how they are made, started and removed."""
