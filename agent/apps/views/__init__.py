"""Apps and events as the API shows them."""
