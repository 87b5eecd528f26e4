"""What happens without a request: recovery after a crash, adoption, the engine's events."""
