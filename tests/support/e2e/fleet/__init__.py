"""A fleet of hosts, whoever set it up, and those who look at it."""
