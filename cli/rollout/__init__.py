"""Changes of one app on many hosts, in batches, which stop in time and can be resumed."""
