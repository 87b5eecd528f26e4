"""The rules of apps: what can be asked of them, carried out completely or not at all."""
