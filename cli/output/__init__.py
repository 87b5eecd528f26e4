"""What commands print: tables, JSON, YAML, names and progress."""
