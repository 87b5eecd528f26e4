"""What puts Rollcall on hosts: packages."""
