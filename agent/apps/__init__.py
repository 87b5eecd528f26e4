"""The rules of apps: what can be asked of them, done completely or not at all."""
