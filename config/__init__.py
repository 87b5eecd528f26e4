"""The settings of both daemons, and how they are read."""

from importlib.metadata import version

VERSION = version("rollcalld")
