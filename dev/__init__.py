"""What ``make run`` and ``make test`` stand on; never installed."""
