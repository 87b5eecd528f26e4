"""Large answers: made in slices, shared by their readers, in bounded memory."""
