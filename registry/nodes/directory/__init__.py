"""All nodes in memory: sorted, listed, filtered; who is fresh; the stream of changes."""
