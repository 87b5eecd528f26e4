"""What each program needs, whatever it does: shared answers, turns, pauses, durable files."""
