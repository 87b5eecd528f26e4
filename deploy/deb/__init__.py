"""The Debian package `rollcall`: both daemons, their units, and settings to start from."""
