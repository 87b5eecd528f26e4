"""The tars in which an app's data is exported and restored."""
