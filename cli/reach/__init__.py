"""How daemons are reached: contexts, keys, whom a key may be sent to, clients."""
