"""The standard streams of a process."""

import os
import sys


def open_closed_streams() -> None:
    """Put the null device in the place of each standard stream that is closed.

    Python has None for such a stream, and the next file or socket would get its descriptor.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115
