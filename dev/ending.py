"""Ending a process that was started here."""

import subprocess


def end(process: subprocess.Popen[bytes], *, within: float) -> bool:
    """Ask it to end, kill it after ``within`` seconds; tell whether it ended when asked."""
    process.terminate()
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True
