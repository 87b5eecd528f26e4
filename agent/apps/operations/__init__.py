"""The operations on an app, as functions of the host."""
