"""Changes of one app: carried out, and whether the app stays up afterwards."""
