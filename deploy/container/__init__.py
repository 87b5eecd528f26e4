"""The images of both daemons."""
