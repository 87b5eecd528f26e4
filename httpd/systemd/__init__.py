"""What a daemon tells systemd, and what it gets from it."""
