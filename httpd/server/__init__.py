"""Listener, TLS, limits of connections, and the lane; all below the application."""
