"""Copies of all nodes out of a bucket and into one."""
