"""The daemon on every host: runs containerised apps and reports to the registries."""
