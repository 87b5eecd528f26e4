"""A home of the test's own: no command leaves anything in that of whoever runs the tests."""

from pathlib import Path


def home(folder: Path) -> dict[str, str]:
    """Return the variables by which programs find a home, all of them in this folder."""
    return {
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder / ".config"),
        "XDG_STATE_HOME": str(folder / ".local" / "state"),
    }
