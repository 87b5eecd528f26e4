"""Names, images, labels, environments, checks and passwords: they are taken or rejected."""

import posixpath
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.api.requests import password
from agent.apps.admission.fields import check_label, check_new_app
from agent.apps.containers.passwords import check_password
from agent.apps.errors import AppError, InvalidApp
from agent.model import HealthCheck, NewApp
from clients.message import label_error
from tests.support.agent.apps.checked_apps import NEW, apps_of
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.running_apps import ASKER


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "field"),
    [
        (HealthCheck(), "health"),
        (HealthCheck(path="/", command=("true",)), "health"),
        (HealthCheck(path="healthz"), "health.path"),
        (HealthCheck(path="/a b"), "health.path"),
        (HealthCheck(path="/ä"), "health.path"),
        (HealthCheck(path="/\r\nHost: x"), "health.path"),
        (HealthCheck(command=()), "health.command"),
        (HealthCheck(command=("",)), "health.command"),
        (HealthCheck(command=("a\0",)), "health.command"),
        (HealthCheck(command=("x" * 9000,)), "health.command"),
    ],
)
async def test_a_check_that_cannot_be_is_rejected_by_its_field(
    tmp_path: Path, check: HealthCheck, field: str
) -> None:
    async with apps_of(tmp_path, FakeEngine()) as apps:
        with pytest.raises(InvalidApp, match=f"`{field}`"):
            await apps.create(NewApp(name="web", image=IMAGE, health=check), ASKER)
        assert await apps.queries.all() == []


@pytest.mark.slow
async def test_a_command_is_rejected_where_apps_may_have_none(tmp_path: Path) -> None:
    async with apps_of(tmp_path, FakeEngine(), allow_command=False) as apps:
        with pytest.raises(InvalidApp, match=r"`health\.command`.*allow_command"):
            await apps.create(NEW, ASKER)
        await apps.create(NewApp(name="web", image=IMAGE, health=HealthCheck(path="/")), ASKER)


def rejection(check: Callable[[], object]) -> str:
    """Return the message of a rejection, empty if there is none."""
    try:
        check()
    except AppError as error:
        return str(error)
    return ""


@pytest.mark.slow
@given(st.text())
def test_any_name_is_one_that_the_engine_takes_or_is_rejected_in_printable_words(name: str) -> None:
    words = rejection(lambda: check_new_app(NewApp(name=name, image="app")))

    assert words.isprintable()
    assert words.isascii()
    if not words:
        assert 1 <= len(name) <= 63
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_.-")
        assert name[0].isalnum()


@pytest.mark.parametrize(
    "image",
    [
        "app",
        "app:1.0",
        "team/app",
        "images.example.com/team/app:v1",
        "localhost:5000/a__b/c-d",
        "app@sha256:" + "0" * 64,
        "sha256:" + "f" * 64,
    ],
)
def test_a_reference_of_an_image_is_taken(image: str) -> None:
    check_new_app(NewApp(name="web", image=image))


@pytest.mark.slow
@given(st.text(alphabet=" \n\t\0$;|&`'\"\\%#?*", min_size=1, max_size=5), st.integers(0, 3))
def test_an_image_with_anything_odd_in_it_is_rejected(odd: str, at: int) -> None:
    with pytest.raises(InvalidApp, match="`image`"):
        check_new_app(NewApp(name="web", image="app"[:at] + odd + "app"[at:]))


@pytest.mark.slow
@given(st.text())
def test_any_label_is_a_key_a_colon_and_a_value_or_is_rejected(label: str) -> None:
    words = rejection(lambda: check_label(label))

    assert words.isprintable()
    if not words:
        assert label.index(":") > 0
        assert label_error(label) is None


@pytest.mark.slow
@given(st.dictionaries(st.text(), st.text()))
def test_any_environment_can_be_given_to_a_container_or_is_rejected(env: dict[str, str]) -> None:
    with suppress(InvalidApp):
        check_new_app(NewApp(name="web", image="app", env=env))
        assert not any("=" in key or "\0" in key + value for key, value in env.items())
        assert all(key.isascii() for key in env)


@pytest.mark.slow
@given(st.one_of(st.text(), st.text(alphabet="/.a \n", max_size=8)))
def test_any_path_of_data_can_be_mounted_or_is_rejected_in_printable_words(path: str) -> None:
    words = rejection(lambda: check_new_app(NewApp(name="web", image="app", data=(path,))))

    assert words.isprintable()
    assert words.isascii()
    if not words:
        assert posixpath.normpath(path) == path
        assert path.startswith("/")
        assert path not in ("/", "//")
        assert not any(unicodedata.category(character) == "Cc" for character in path)


@pytest.mark.parametrize(
    "path", ["/srv", "/var/lib/app", "/root/.config", "/a b", "/...", "/etc/app", "/données"]
)
def test_a_path_of_data_is_taken(path: str) -> None:
    check_new_app(NewApp(name="web", image="app", data=(path, "/other", f"{path}/below")))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (("srv",), "absolute path in normal form"),
        (("/",), "absolute"),
        (("/srv/",), "absolute"),
        (("/a//b",), "absolute"),
        (("/a/../b",), "absolute"),
        (("/a/.",), "absolute"),
        (("/a\n",), "absolute"),
        (("/" + "a" * 256,), "256 characters"),
        (("/" + "ü" * 128,), "absolute"),  # in bytes it is longer than a name may be
        (("/proc/x",), "no volume can be mounted"),
        (("/sys",), "no volume can be mounted"),
        (("/etc",), "no volume can be mounted"),
        (("/srv", "/a", "/srv"), "'/srv' twice"),
    ],
)
def test_a_path_of_data_is_rejected_with_what_would_be_right(
    data: tuple[str, ...], words: str
) -> None:
    with pytest.raises(InvalidApp, match=words):
        check_new_app(NewApp(name="web", image="app", data=data))


@pytest.mark.slow
@given(st.text(min_size=1))
def test_a_rejected_password_is_not_in_the_message(word: str) -> None:
    words = rejection(lambda: check_password(word, min_length=8))

    assert len(word) < 8 or word not in words
    if not words:
        assert 8 <= len(word) <= 1024
        assert "\n" not in word


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r\n")))
def test_a_password_sent_as_plain_text_is_taken_as_it_is(word: str) -> None:
    assert password("text/plain", word.encode() + b"\n") == word
