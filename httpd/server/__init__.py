"""Listening, and what happens on a connection before a request reaches the application."""
