"""Which paths of an app keep their files, and the names and labels of their volumes."""

import hashlib
import re
from collections.abc import Mapping

from agent.apps.defaults import AppDefaults
from agent.apps.errors import UnfitImage
from agent.apps.labels import AGENT_LABEL, APP_LABEL, OPERATION_LABEL, PATH_LABEL, engine_bytes
from agent.engine.models import Image
from agent.model import App

DATA_LABEL = "rollcall.data"

DATA_PATH = re.compile(r"(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*){1,16}")
MAX_DATA_PATH_LENGTH = 256
FORBIDDEN_ROOTS = ("dev", "etc", "proc", "sys")
SEPARATORS = re.compile(r"[\s,]+")
# The map of an app is in a label of its container, which the engine repeats in each list and event.
MAX_VOLUMES = 64
MAX_PATHS_BYTES = 8192
DIGEST_LENGTH = 12


def is_data_path(text: str) -> bool:
    """Return whether a volume may be mounted there, as a setting or a label of an image asks."""
    fits = len(text) <= MAX_DATA_PATH_LENGTH and DATA_PATH.fullmatch(text) is not None
    return fits and text.split("/")[1] not in FORBIDDEN_ROOTS


def labelled_paths(image: Image) -> tuple[str, ...]:
    """Return the paths of the image's label; none if one of them is invalid."""
    paths = tuple(dict.fromkeys(SEPARATORS.split(image.labels.get(DATA_LABEL, "").strip(" ,"))))
    return paths if all(map(is_data_path, paths)) else ()


def data_paths(app: App, image: Image, defaults: AppDefaults) -> tuple[str, ...]:
    """Return the paths that must have a volume, in the order in which new volumes get names."""
    own = sorted(image.volumes)
    chosen = app.data or labelled_paths(image) or own or (defaults.data,)
    return tuple(dict.fromkeys((*chosen, *own)))


def mounted_volumes(app: App, image: Image, defaults: AppDefaults) -> dict[str, str]:
    """Return the volumes to mount, by path.

    Without ``data``, each path that has a volume goes on being mounted: no image makes files of an
    app disappear. With it, only the operator's paths and the image's own are.
    """
    paths = data_paths(app, image, defaults) if app.data else app.volumes
    return {path: app.volumes[path] for path in paths}


def check_volumes(volumes: Mapping[str, str], image: str) -> None:
    """Refuse a map that is too large; UnfitImage."""
    if len(volumes) > MAX_VOLUMES:
        raise UnfitImage(
            f"with the image `{image}` the app would have {len(volumes)} volumes, and may have"
            f" {MAX_VOLUMES}, with those of the paths that it had before; use another image, or"
            " create the app anew"
        )
    size = engine_bytes(volumes)
    if size > MAX_PATHS_BYTES:
        raise UnfitImage(
            f"with the image `{image}` the paths of the app's volumes would take {size} bytes in"
            f" the engine's lists and events, and may take {MAX_PATHS_BYTES}; use another image,"
            " or create the app anew"
        )


def volume_name(app: str, path: str | None = None) -> str:
    """Return the name of an app's first volume, or of another one, which is at ``path``."""
    if path is None:
        return f"rollcall-{app}"
    return f"rollcall-{app}-{hashlib.sha256(path.encode()).hexdigest()[:DIGEST_LENGTH]}"


def restored_volume_name(app: str, path: str, *, operation: str) -> str:
    """Return the name of a volume that an operation fills with data that was sent."""
    return f"{volume_name(app, path)}-{operation[:8]}"


def volume_labels(app: str, path: str, *, agent: str, operation: str) -> dict[str, str]:
    """Return the labels of a volume; ``agent`` and ``operation`` are the ids of what makes it."""
    return {APP_LABEL: app, PATH_LABEL: path, AGENT_LABEL: agent, OPERATION_LABEL: operation}
