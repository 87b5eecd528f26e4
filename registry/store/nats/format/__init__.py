"""What a bucket holds: its keys and values, nodes read from it, and ages."""
