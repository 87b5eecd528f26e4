"""The kinds of stores, and the URLs that name them."""
