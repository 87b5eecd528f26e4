"""What happens without a request: recovery of operations, adoption, the watch of the engine."""
