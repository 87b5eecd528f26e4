"""The HTTP server below the routes: sockets, TLS, limits."""
