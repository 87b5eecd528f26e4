"""The operator's command `rollcall`, which asks the registry and the agents."""
