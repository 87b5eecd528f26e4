"""What `doctor` finds of a fleet."""
