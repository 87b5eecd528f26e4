"""Target groups for Prometheus, made from the labels of nodes."""
