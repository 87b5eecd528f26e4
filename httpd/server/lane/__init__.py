"""The lane: plain requests of one route, answered before aiohttp."""
