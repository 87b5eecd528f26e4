"""The interface to systemd: notifications, sockets, credentials."""
