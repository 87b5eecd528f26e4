"""The API of the Docker Engine: requests, responses and streams, as the engine has them."""
