"""Whether a change is admitted: valid, and the host has the ports, the memory and the disk."""
