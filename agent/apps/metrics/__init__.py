"""Metrics of apps, which are measured at intervals and shown without asking the engine."""
