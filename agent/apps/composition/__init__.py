"""Builds the parts of the apps and connects them."""
