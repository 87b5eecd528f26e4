"""A real engine, to be changed in one of its methods."""

from agent.engine.engine import Engine


class RealEngine(Engine):
    """The engine at an address, with the time limit that an agent has by default."""

    def __init__(self, url: str) -> None:
        super().__init__(url=url, timeout_seconds=30)
