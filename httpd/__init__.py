"""The HTTP server that both daemons share; it knows neither apps nor nodes."""
