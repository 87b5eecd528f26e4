"""Fetching images: what the engine tells of a pull, and when it has failed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from docker.utils import parse_repository_tag

from agent.engine.protocol import DiskFull, EngineError, ImageUnavailable, PullProgress
from agent.engine.registry_logins import full_name
from agent.engine.translation import refusal

DONE = ("Download complete", "Pull complete", "Already exists", "Verifying Checksum", "Extracting")


def pull_parameters(reference: str) -> dict[str, str]:
    """Split a reference; without a tag the engine would fetch all that there are."""
    repository, tag = parse_repository_tag(reference)
    return {"fromImage": repository, "tag": tag or "latest"}


def came_from_registry(reference: str, digests: Sequence[str]) -> bool:
    """Tell whether an image is known to a registry by the repository of this reference.

    The same image may have been pushed under other names: those tell nothing about this one.
    """
    repository, _ = parse_repository_tag(reference)
    known = {digest.partition("@")[0] for digest in digests}
    return full_name(repository) in map(full_name, known)


class Pull:
    """Adds up what the engine tells of the layers."""

    def __init__(self, progress: Callable[[PullProgress], None]) -> None:
        self._progress = progress
        self._layers: dict[str, tuple[int, int]] = {}

    def take(self, entry: Mapping[str, Any]) -> None:
        """Take one line of the engine's report.

        Raises:
            ImageUnavailable, DiskFull: the line tells of a failure, which the status did not.

        """
        text = (entry.get("errorDetail") or {}).get("message") or entry.get("error")
        if text:
            raise pull_failure(str(text))
        layer, detail = entry.get("id"), entry.get("progressDetail") or {}
        if layer and entry.get("status") == "Downloading" and detail.get("total"):
            self._layers[layer] = (detail.get("current", 0), detail["total"])
        elif layer in self._layers and entry.get("status") in DONE:
            self._layers[layer] = (self._layers[layer][1], self._layers[layer][1])
        else:
            return
        done, total = (sum(column) for column in zip(*self._layers.values(), strict=True))
        self._progress(PullProgress(done_bytes=done, total_bytes=total))


def pull_failure(text: str) -> EngineError:
    """Say why an image could not be had, in the engine's words."""
    error = refusal(text)
    return error if isinstance(error, DiskFull) else ImageUnavailable(text)
