"""The files of the pages for people."""
