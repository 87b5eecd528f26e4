"""Changes of one app: made, and whether the app stays up afterwards."""
