"""The programs behind ``make run`` and ``make test``; never installed."""
