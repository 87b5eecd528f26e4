"""The images of apps: pulling them, keeping those that are needed, removing the others."""
