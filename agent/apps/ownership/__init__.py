"""The owners of containers and volumes, where several agents share an engine."""
