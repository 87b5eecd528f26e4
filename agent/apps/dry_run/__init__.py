"""Dry runs: operations that are carried out on a copy, to show what they would do."""
