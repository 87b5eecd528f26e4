"""Metrics of what a daemon depends on: its certificates, its disks, its event loop."""
