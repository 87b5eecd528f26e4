"""Running operations: one at a time for an app, each in a task of its own."""
