"""What can be asked of apps."""
