"""What can be set, and how it is read."""

from importlib.metadata import version

VERSION = version("rollcalld")
