"""The files in the agent's state directory, which is that of its database."""
