"""What each program needs, whatever it does: shared work, pauses, repetition, files, clocks."""
