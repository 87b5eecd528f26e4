"""The container engine: what the rules of apps ask of it, its models and errors."""
