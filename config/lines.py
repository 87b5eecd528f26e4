"""Adds to a mistake in a settings file the line that it is in."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from config.load import ConfigError

# A setting's path, such as ``keys[0].file``, before the colon behind it.
SETTING = re.compile(r"[\w.\[\]-]+(?=: )")
STEP = re.compile(r"[^.\[\]]+")


@contextmanager
def lines_in_mistakes(file: Path) -> Iterator[None]:
    """Begin each mistake of a ConfigError with ``FILE:LINE:`` if it names a setting in the file.

    Of one that is missing, it is the line of the section that it belongs to, if there is one.
    """
    try:
        yield
    except ConfigError as error:
        raise ConfigError(*_with_lines(file, error.mistakes)) from error


def _with_lines(file: Path, mistakes: tuple[str, ...]) -> Iterator[str]:
    try:
        document = yaml.compose(file.read_bytes(), yaml.SafeLoader)
    except (OSError, yaml.YAMLError, ValueError, RecursionError):
        document = None  # the mistake says so
    beginning = f"{file}: "
    for mistake in mistakes:
        setting = SETTING.match(mistake.removeprefix(beginning))
        line = _line_of(setting[0], document) if setting else None
        if line is None or not mistake.startswith(beginning):
            yield mistake
        else:
            yield f"{file}:{line}: {mistake.removeprefix(beginning)}"


def _line_of(setting: str, document: yaml.Node | None) -> int | None:
    """Return the line of a setting, or of the nearest section around it that is in the file."""
    line, node = None, document
    for step in STEP.findall(setting):
        found = _child(node, step)
        if found is None:
            break
        place, node = found
        line = place.start_mark.line + 1
    return line


def _child(node: yaml.Node | None, step: str) -> tuple[yaml.Node, yaml.Node] | None:
    """Return where a field or an element begins, and its value."""
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == step), None)
    if isinstance(node, yaml.SequenceNode) and step.isdecimal() and int(step) < len(node.value):
        return node.value[int(step)], node.value[int(step)]
    return None
