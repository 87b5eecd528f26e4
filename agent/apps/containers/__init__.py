"""The containers of apps: their configuration, and how they are made, started and removed."""
