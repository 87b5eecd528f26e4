"""What the engine sends and says, taken apart; no engine is needed for this."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import requests
from docker.errors import APIError
from hypothesis import given
from hypothesis import strategies as st

from agent.engine import decode, responses
from agent.engine.decode import image_events
from agent.engine.errors import (
    DiskFull,
    EngineConflict,
    EngineError,
    EngineRejected,
    EngineTimeout,
    EngineTooOld,
    EngineUnavailable,
    HostPortInUse,
    ImageNotFound,
    ImageServerBusy,
    ImageServerUnavailable,
    ImageUnavailable,
    NameInUse,
    NetworkNotFound,
    ObjectNotFound,
)
from agent.engine.http import common_version
from agent.engine.images import PullReport
from agent.engine.logins import (
    ImageRegistryLogin,
    came_from_registry,
    login_header,
    pull_query,
)
from agent.engine.models import PullProgress
from agent.engine.responses import Version
from agent.engine.streams import LogFrames, lines
from agent.engine.translation import from_library, from_pull, from_response


@pytest.mark.parametrize(
    ("newest", "oldest", "spoken"),
    [("1.41", "1.12", "1.41"), ("1.47", "1.24", "1.47"), ("1.52", "1.44", "1.47")],
)
def test_the_lower_of_the_engines_and_the_tested_version_is_spoken(
    newest: str, oldest: str, spoken: str
) -> None:
    assert common_version(Version("x", newest, oldest)) == spoken


@pytest.mark.parametrize(("newest", "oldest"), [("1.40", "1.12"), ("1.60", "1.50")])
def test_an_engine_with_no_version_in_common_is_rejected_with_both_ranges(
    newest: str, oldest: str
) -> None:
    with pytest.raises(EngineTooOld, match=rf"99\.1.*{oldest} to {newest}.*1\.41 to 1\.47"):
        common_version(Version("99.1", newest, oldest))


@pytest.mark.parametrize(
    ("text", "status", "kind"),
    [
        ("write /x: no space left on device", 500, DiskFull),
        ("Bind for 0.0.0.0:80 failed: port is already allocated", 500, HostPortInUse),
        ("listen tcp4 0.0.0.0:80: bind: address already in use", 500, HostPortInUse),
        ("No such image: x:latest", 404, ImageUnavailable),
        ('The container name "/x" is already in use by container "y"', 409, NameInUse),
        ("removal of container x is already in progress", 409, EngineConflict),
        ("No such container: x", 404, ObjectNotFound),
        ("network 3f21 not found", 404, NetworkNotFound),
        ("failed to set up networking: network 3f21 not found", 500, NetworkNotFound),
        ("something else", 500, EngineRejected),
    ],
)
def test_the_engines_words_become_our_errors(
    text: str, status: int, kind: type[EngineError]
) -> None:
    response = requests.Response()
    response.status_code = status

    body = msgspec.json.encode({"message": text})
    assert type(from_response(status, body)) is kind
    assert type(from_library(APIError("x", response=response, explanation=text))) is kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("manifest for x:1 not found: manifest unknown: manifest unknown", ImageNotFound),
        ("pull access denied for x, repository does not exist or may require login", ImageNotFound),
        ("docker.io/library/x:1: not found", ImageNotFound),
        (
            "Get http://h:5000/v2/: dial tcp h:5000: connect: connection refused",
            ImageServerUnavailable,
        ),
        ("lookup h on 127.0.0.1:53: no such host", ImageServerUnavailable),
        ("Get https://h/v2/: net/http: TLS handshake timeout", ImageServerUnavailable),
        ("received unexpected HTTP status: 503 Service Unavailable", ImageServerUnavailable),
        ("toomanyrequests: You have reached your pull rate limit", ImageServerBusy),
        ("unauthorized: authentication required", ImageUnavailable),
        ("received unexpected HTTP status: 429 Too Many Requests", ImageServerBusy),
        ("failed to register layer: no space left on device", DiskFull),
    ],
)
def test_a_pull_that_fails_shows_a_server_that_fails_from_an_image_that_is_not_there(
    text: str, kind: type[EngineError]
) -> None:
    assert type(from_pull(text)) is kind


@pytest.mark.parametrize(
    "text",
    [
        "unauthorized: authentication required",
        "Get https://h/v2/: unauthorized: incorrect username or password",
        "pull access denied for x, repository does not exist or may require 'docker login'",
        "Get https://h/v2/: no basic auth credentials",
        "toomanyrequests: You have reached your pull rate limit",
    ],
)
def test_a_server_that_wants_another_login_is_reported_with_the_setting(text: str) -> None:
    assert "`docker.registries`" in str(from_pull(text))


def test_a_timeout_is_distinguished_from_an_engine_that_is_not_there() -> None:
    assert type(from_library(requests.ReadTimeout())) is EngineTimeout
    assert type(from_library(aiohttp.SocketTimeoutError())) is EngineTimeout
    assert type(from_library(requests.ConnectionError())) is EngineUnavailable
    assert type(from_library(aiohttp.ServerDisconnectedError())) is EngineUnavailable
    assert type(from_library(ConnectionRefusedError())) is EngineUnavailable


def cut(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    for size in sizes:
        yield data[:size]
        data = data[size:]
    yield data


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=300)), max_size=10),
    st.lists(st.integers(1, 50), max_size=40),
)
def test_a_log_is_freed_of_its_headers_however_it_is_cut(
    written: list[tuple[int, bytes]], sizes: list[int]
) -> None:
    packed = b"".join(
        bytes([stream, 0, 0, 0]) + len(text).to_bytes(4, "big") + text for stream, text in written
    )

    frames = LogFrames()
    contents = [content for chunk in cut(packed, sizes) for content in frames.contents(chunk)]
    assert b"".join(contents) == b"".join(text for _, text in written)


@pytest.mark.slow
@given(st.lists(st.integers(1, 20), max_size=40))
async def test_lines_are_read_however_they_are_cut(sizes: list[int]) -> None:
    sent = b'{"status": "a"}\r\n{"status": "\xc3\xa4"}\n\n{"error": "b"}'

    async def chunks() -> AsyncIterator[bytes]:
        for chunk in cut(sent, sizes):
            yield chunk

    assert [msgspec.json.decode(line) async for line in lines(chunks())] == [
        {"status": "a"},
        {"status": "ä"},
        {"error": "b"},
    ]


async def test_a_line_without_end_is_given_up() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 100_000

    with pytest.raises(EngineError, match="unexpected answer"):
        await anext(lines(chunks()))


def test_a_pull_adds_up_its_layers_and_an_error_in_its_report_is_an_error() -> None:
    reported = list[PullProgress]()
    pull = PullReport(reported.append)

    def take(line: dict[str, object]) -> None:
        pull.take(msgspec.json.encode(line))

    for layer, current in (("a", 10), ("b", 0), ("a", 60)):
        detail = {"current": current, "total": 100}
        take({"id": layer, "status": "Downloading", "progressDetail": detail})
    take({"id": "a", "status": "Pull complete", "progressDetail": {}})

    assert [each.percent for each in reported] == [10, 5, 30, 50]
    with pytest.raises(ImageUnavailable, match="toomanyrequests"):
        take({"errorDetail": {"message": "toomanyrequests: slow down"}, "error": ""})
    with pytest.raises(ImageUnavailable, match="manifest unknown"):
        take({"error": "manifest unknown"})
    with pytest.raises(DiskFull):
        take({"errorDetail": {"message": "write /x: no space left on device"}})


@pytest.mark.parametrize(
    ("reference", "repository", "tag"),
    [
        ("busybox", "busybox", "latest"),
        ("127.0.0.1:5000/team/app", "127.0.0.1:5000/team/app", "latest"),
        ("host:5000/app:2", "host:5000/app", "2"),
    ],
)
def test_a_pull_asks_for_one_tag(reference: str, repository: str, tag: str) -> None:
    assert pull_query(reference) == {"fromImage": repository, "tag": tag}


def test_an_image_is_local_unless_a_registry_knows_it_by_that_name() -> None:
    digests = ["127.0.0.1:5000/team/app@sha256:1", "busybox@sha256:2"]

    assert came_from_registry("127.0.0.1:5000/team/app:3", digests)
    assert came_from_registry("docker.io/library/busybox", digests)
    assert not came_from_registry("127.0.0.1:5000/other", digests)
    assert not came_from_registry("app", [])


@pytest.mark.parametrize(
    ("reference", "image_id", "may_be_local"),
    [
        ("app:1", "sha256:2", True),  # the containerd image store, whose ids are those of manifests
        ("app:1", "sha256:3", False),
        ("images.test:5000/app:1", "sha256:2", False),
    ],
)
def test_an_image_store_that_gives_digests_to_local_images_leaves_it_open_whether_one_is(
    reference: str, image_id: str, *, may_be_local: bool
) -> None:
    repository = reference.removesuffix(":1")
    entry = {"Id": image_id, "RepoDigests": [f"{repository}@sha256:2"]}

    image = decode.image(msgspec.json.encode(entry), reference)

    assert (image.local, image.may_be_local) == (False, may_be_local)


def test_what_an_image_exposes_is_counted_and_its_real_ports_of_tcp_are_reported() -> None:
    exposed = ["8000/tcp", "53/udp", "0/tcp", "70000/tcp", "9000-9010/tcp", "http/tcp"]
    entry = {"Id": "sha256:1", "Config": {"ExposedPorts": {port: {} for port in exposed}}}

    image = decode.image(msgspec.json.encode(entry), "image")

    assert (image.tcp_ports, image.udp_ports) == (frozenset({8000}), frozenset({53}))
    assert image.exposes == 6


def test_the_longest_login_counts_and_others_get_none(tmp_path: Path) -> None:
    for name in ("all", "team"):
        (tmp_path / name).write_text(name)
    logins = [
        ImageRegistryLogin(server="images.test:5000", user="u", password_file=tmp_path / "all"),
        ImageRegistryLogin(
            server="images.test:5000/team", user="u", password_file=tmp_path / "team"
        ),
    ]
    team, other = (
        login_header(f"images.test:5000/{path}/app", logins) for path in ("team", "other")
    )

    assert team != other
    assert team
    assert other
    assert login_header("images.test:5000/teamster/app", logins) == login_header(
        "images.test:5000/other/app", logins
    )
    assert login_header("elsewhere.test/team/app", logins) == {}
    assert login_header("busybox", logins) == {}


def test_the_absolute_volumes_of_an_image_are_in_normal_form_without_the_root() -> None:
    declared: dict[str, dict[str, str]] = {
        "/data/": {},
        "//b": {},
        "/a/./c": {},
        "/": {},
        "relative": {},
    }
    answer = msgspec.json.encode({"Id": "i", "Config": {"Volumes": declared}})

    assert decode.image(answer, "app").volumes == {"/data", "/b", "/a/c", "relative"}


@pytest.mark.parametrize(
    "config",
    [
        {"Cmd": ["sh", "-c", "x" * 70_000]},
        {"Entrypoint": ["x" * 70_000]},
        {"Env": [f"A={'x' * 70_000}"]},
        {"Healthcheck": {"Test": ["CMD-SHELL", "x" * 70_000]}},
        {"Labels": {"a": "<" * 12_000}},  # the engine escapes it
    ],
)
def test_all_of_the_configuration_of_an_image_counts_as_the_engine_writes_it(
    config: dict[str, Any],
) -> None:
    answer = msgspec.json.encode({"Id": "i", "Config": config}).replace(b"<", rb"\u003c")

    assert 70_000 < decode.image(answer, "app").config_bytes < 73_000


def test_an_engine_without_volumes_lists_none() -> None:
    assert decode.volumes(b'{"Volumes": null}') == {}
    listed = b'{"Volumes": [{"Name": "a", "Labels": null}, {"Name": "b", "Labels": {"k": "v"}}]}'
    assert decode.volumes(listed) == {"a": {}, "b": {"k": "v"}}


def image_event(action: str, actor_id: str, name: str) -> bytes:
    actor = {"ID": actor_id, "Attributes": {"name": name}}
    return msgspec.json.encode({"Action": action, "Actor": actor, "timeNano": 10**9})


def test_events_of_an_image_are_found_by_reference_and_by_id_and_no_others() -> None:
    image_id = f"sha256:{'0' * 64}"
    names = {"images.test:5000/shop:latest", image_id}
    lines = [
        image_event("pull", "images.test:5000/shop:latest", "images.test:5000/shop"),
        image_event("tag", image_id, "images.test:5000/theirs:1"),
        image_event("untag", f"sha256:{'1' * 64}", "images.test:5000/shop:latest"),
        # The engine adds the repository to the reference that is pulled: here another one.
        image_event("pull", "images.test:5000/shop:1", "images.test:5000/shop"),
        image_event("pull", "images.test:5000/shopping:latest", "images.test:5000/shopping"),
    ]

    assert [each.action for each in image_events(lines, names)] == ["pull", "tag", "untag"]


@pytest.mark.parametrize(("start_hours", "seconds"), [(0, 24.0), (87_600, 3600.0)])
def test_the_check_of_an_image_gets_an_hour_at_most(start_hours: int, seconds: float) -> None:
    check = responses.HealthCheck(
        test=["CMD", "false"],
        interval=5 * 10**9,
        timeout=3 * 10**9,
        start_period=start_hours * 3600 * 10**9,
    )
    never = responses.NEVER
    entry = responses.Inspected(
        id="a",
        name="/web",
        image="i",
        created=never,
        restart_count=0,
        state=responses.State(
            status="created", exit_code=0, started_at=never, finished_at=never, oom_killed=False
        ),
        config=responses.Config(healthcheck=check),
        host_config=responses.HostConfig(),
        network_settings=responses.NetworkSettings(),
    )

    assert decode.inspected(msgspec.json.encode(entry)).health_seconds == seconds
