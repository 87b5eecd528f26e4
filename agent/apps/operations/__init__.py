"""The operations that change apps, and what runs them."""
