"""What the agent keeps on disk."""
