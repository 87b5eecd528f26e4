"""The clients of both daemons, and the messages that hosts and the registry exchange."""
