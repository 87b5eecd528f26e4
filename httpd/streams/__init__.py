"""Answers that do not end by themselves: server-sent events."""
