"""The forms of what commands print."""

from enum import StrEnum


class Format(StrEnum):
    """The forms of output: tables for people, the others for programs."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
