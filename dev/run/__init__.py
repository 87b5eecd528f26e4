"""`make run`: a registry, an agent and where needed an engine, until Ctrl-C."""
