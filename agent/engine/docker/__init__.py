"""The Docker Engine: the only folder that uses docker-py."""
