from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config.load import ConfigError, lines_in_mistakes

TEXT = """\
listen: 127.0.0.1:7655
nodes:
  max_mib: 1   # a comment

  warm_up_seconds: x
keys:
  - {name: ops, file: ops.key}
  - name: more
    file: more.key
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a settings file."""
    written = tmp_path_factory.mktemp("settings") / "registry.yml"
    written.write_text(TEXT)
    return written


def located(file: Path, *mistakes: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught, lines_in_mistakes(file):
        raise ConfigError(*mistakes)
    return caught.value.mistakes


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("listen", 1),
        ("nodes", 2),
        ("nodes.warm_up_seconds", 5),
        ("nodes.missing", 2),
        ("keys[0].file", 7),
        ("keys[1]", 8),
        ("keys[1].file", 9),
        ("keys[2]", 6),
    ],
)
def test_a_mistake_begins_with_the_line_of_its_setting(file: Path, setting: str, line: int) -> None:
    assert located(file, f"{file}: {setting}: is wrong: see") == (
        f"{file}:{line}: {setting}: is wrong: see",
    )


@pytest.mark.parametrize(
    "mistake", ["{file}: tls: is missing", "{file}: is not YAML: x in line 3", "other: nodes: no"]
)
def test_a_mistake_of_nothing_in_the_file_stays_as_it_is(file: Path, mistake: str) -> None:
    mistake = mistake.format(file=file)

    assert located(file, mistake) == (mistake,)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(text=st.text(max_size=40) | st.just(TEXT), setting=st.text(max_size=20))
def test_whatever_the_file_holds_no_word_of_a_mistake_is_lost(
    tmp_path: Path, text: str, setting: str
) -> None:
    file = tmp_path / "any.yml"
    file.write_text(text, "utf-8", errors="replace")

    (found,) = located(file, f"{file}: {setting}: is wrong")

    assert found.startswith(str(file))
    assert found.endswith(f": {setting}: is wrong")
