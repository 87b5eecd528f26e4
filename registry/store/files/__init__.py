"""What stores have in common that write files."""
