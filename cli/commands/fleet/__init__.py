"""The commands that change many hosts."""
