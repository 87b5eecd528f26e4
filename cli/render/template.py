"""Templates of files: Jinja2, in a sandbox, where whatever is not defined is an error."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from jinja2 import (
    FileSystemLoader,
    StrictUndefined,
    TemplateError,
    TemplateNotFound,
    TemplateSyntaxError,
)
from jinja2.sandbox import ImmutableSandboxedEnvironment

from cli.render.file import RenderError, TemplateNode

WORD = re.compile(r"[A-Za-z0-9._:-]+", re.ASCII)


class NodeTemplate:
    """One template in a file, which is read again when it has changed.

    It may include others of its folder. Raises RenderError if it cannot be read.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._environment = ImmutableSandboxedEnvironment(
            loader=FileSystemLoader(file.parent),
            undefined=StrictUndefined,
            autoescape=Path(file.name.removesuffix(".j2")).suffix in (".html", ".xml"),
            keep_trailing_newline=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.tests.update(word=is_word, matching=is_matching)
        self.render([], check_only=True)

    def render(self, nodes: Iterable[TemplateNode], *, check_only: bool = False) -> str:
        """Return the text of the file. Raises RenderError, which names the line."""
        try:
            template = self._environment.get_template(self._file.name)
            return "" if check_only else template.render(nodes=list(nodes))
        except TemplateSyntaxError as error:
            raise RenderError(f"{error.filename}:{error.lineno}: {error.message}") from error
        except TemplateNotFound as error:
            if error.name == self._file.name:
                raise RenderError(f"{self._file} cannot be read: there is no such file") from error
            raise RenderError(
                f"{self._place(error)}: no template {error.name} beside it"
            ) from error
        except (OSError, UnicodeDecodeError) as error:
            raise RenderError(f"{self._file} cannot be read: {error}") from error
        except TemplateError as error:
            raise RenderError(f"{self._place(error)}: {error.message}") from error
        except Exception as error:  # what a template does may raise anything
            raise RenderError(f"{self._place(error)}: {type(error).__name__}: {error}") from error

    def _place(self, error: Exception) -> str:
        """Return the file, and the line of the template that ran last."""
        line, trace = None, error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == str(self._file):
                line = trace.tb_lineno
            trace = trace.tb_next
        return f"{self._file}" if line is None else f"{self._file}:{line}"


def is_word(value: object) -> bool:
    """Return whether a value is a text of ASCII letters, digits, and ``.``, ``_``, ``:``, ``-``."""
    return isinstance(value, str) and WORD.fullmatch(value) is not None


def is_matching(hostname: str, patterns: Iterable[str]) -> bool:
    """Return whether a hostname matches one of the patterns, such as ``web-*.example.com``."""
    if isinstance(patterns, str):
        raise TypeError("`matching` takes a list of patterns")
    return any(fnmatchcase(hostname, pattern) for pattern in patterns)
