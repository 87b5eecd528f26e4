"""Random faults of NATS servers and registries under load."""
