"""Where the registry keeps nodes."""
