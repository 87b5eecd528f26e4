"""The nodes in memory, and the rules for them."""
