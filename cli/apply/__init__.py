"""A file that says which apps are to run on which hosts: read, compared with what is, applied."""
