from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config.agent import AgentSettings
from config.load import ConfigError, lines_in_mistakes, load
from config.registry import RegistrySettings
from config.server import ServerSettings

CONFIG = Path(__file__).parents[2] / "config"


@pytest.mark.parametrize(
    ("name", "settings"), [("agent", AgentSettings), ("registry", RegistrySettings)]
)
def test_the_shipped_file_gives_exactly_the_defaults(
    name: str, settings: type[ServerSettings]
) -> None:
    assert load(CONFIG / f"{name}.yml", settings) == msgspec.convert({}, settings)


@pytest.mark.parametrize(
    ("name", "settings"), [("agent", AgentSettings), ("registry", RegistrySettings)]
)
def test_the_shipped_file_names_every_setting(name: str, settings: type[ServerSettings]) -> None:
    text = (CONFIG / f"{name}.yml").read_text()
    missing = [field for field in settings.__struct_fields__ if f"{field}:" not in text]
    assert missing == []


AGENT = """
listen: "[::1]:7656"
tls: {certificate: a.crt, key: a.key, client_ca: ca.crt}
keys:
  - {name: ops, file: ops.key, allow: [read, write]}
node:
  hostname: web-1.example.com
  advertise: http://web-1.example.com:7656
  labels: [service:web]
  labels_dir: /etc/rollcall/labels.d
  kv: {rack: r12}
registries:
  - {url: https://registry:7655, key_file: k, ca: c}
heartbeat_seconds: 30
docker: {url: unix:///run/docker.sock, timeout_seconds: 30}
store: sqlite:///var/lib/rollcall/agent.db
apps: {cpu: 100, memory: 512, ports: 20000-29999,
       bind: 0.0.0.0, ssh_port: 22, http_port: 8000,
       data: /srv, ssh_user: app, stop_seconds: 10,
       password_min: 8, pids: 512, log_mib: 10}
open_metrics: false
log: {level: info, format: auto}
"""
REGISTRY = """
listen: 127.0.0.1:7655
tls: {certificate: a.crt, key: a.key, client_ca: ca.crt}
keys:
  - {name: ops, file: F, allow: [read, write]}
  - {name: scraper, value: K, allow: [scrape]}
  - {name: hosts, file: F, allow: [register],
     nodes: ["web-*"]}
node_secret: {file: F}
store: sqlite:///var/lib/rollcall/registry.db
nodes: {stale_after_seconds: 90,
        expire_after_seconds: 86400,
        warm_up_seconds: 90,
        max_mib: 512,
        changes_per_minute: 60}
prometheus: {default_port: 9100,
             ports: {postgres: 9187}}
open_metrics: false
log: {level: info, format: auto}
"""


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "settings.yml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_every_agent_setting_of_the_interface_is_known(tmp_path: Path) -> None:
    settings = load(write(tmp_path, AGENT), AgentSettings)
    assert settings.node.kv == {"rack": "r12"}
    assert settings.apps.port_range() == range(20000, 30000)
    assert settings.tls is not None
    assert settings.tls.client_ca == "ca.crt"


def test_every_registry_setting_of_the_interface_is_known(tmp_path: Path) -> None:
    settings = load(write(tmp_path, REGISTRY), RegistrySettings)
    assert [key.name for key in settings.keys] == ["ops", "scraper", "hosts"]
    assert [key.nodes for key in settings.keys] == [("*",), ("*",), ("web-*",)]
    assert settings.prometheus.ports == {"postgres": 9187}


def test_an_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    assert load(write(tmp_path, "# nothing\n"), AgentSettings) == AgentSettings()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("lisen: 1", "lisen: unknown setting; allowed here: listen, tls,"),
        ("nodes: {stale: 1}", "nodes.stale: unknown setting; allowed here: stale_after_seconds,"),
        ("keys: [{nam: a}]", "keys[0].nam: unknown setting; allowed here: value, file, name,"),
        ("node_secret: [{fil: a}]", "node_secret[0].fil: unknown setting; allowed here: value,"),
        (
            "keys: [{name: a, value: b, allow: [reed]}]",
            "keys[0].allow[0]: Invalid enum value 'reed'",
        ),
        ("log: {level: loud}", "allowed here: debug, error, info, warning"),
        ("keys: [{name: a, value: b, allow: []}]", "keys[0].allow: Expected"),
        ("keys: [{name: a, value: b, file: c, allow: [read]}]", "keys[0]: give either"),
        ("keys: [{name: a, value: b, allow: [read], apps: [a]}]", "keys[0].apps: unknown setting"),
        ("keys: [{name: a, allow: [read]}]", "keys[0]: give either `value` or `file`"),
        ("nodes: {stale_after_seconds: '90'}", "nodes.stale_after_seconds: Expected `int`"),
        ("nodes: {stale_after_seconds: 1.5}", "nodes.stale_after_seconds: Expected `int`"),
        ("nodes: {stale_after_seconds: 0}", "nodes.stale_after_seconds: Expected `int` >= 1"),
        ("nodes: {expire_after_seconds: 5}", "at least `stale_after_seconds`"),
        ("prometheus: {ports: {a: 65536}}", "<= 65535"),
        ("listen: nowhere", "`listen`: `nowhere` is no address; write HOST:PORT"),
        ("listen: ':80'", "write HOST:PORT"),
        ("listen: 127.0.0.1:65536", "write HOST:PORT"),
        ("listen: 127.0.0.1:\u0661", "write HOST:PORT"),
        ("listen: ::1:80", "needs brackets"),
        ("listen: 7655", "Expected `str`"),
        ("listen: a:1\nlisten: b:2", "`listen` is set twice"),
        ("[1, 2]", "Expected `object`, got `array`"),
        ("{", "is not YAML: while parsing a flow node expected the node content"),
        ("a: b: c", "mapping values are not allowed here in line 1, column 5"),
        ("listen: '[zz]:80'", "zz is no IPv6 address"),
        ("a: &a [*a]", "is not YAML"),
        ("!!python/object/apply:os.getcwd []", "is not YAML"),
        (b"\xff\xfe\x00", "is not YAML"),
    ],
)
def test_a_wrong_setting_is_rejected_with_its_path_and_what_is_right(
    tmp_path: Path, text: str | bytes, problem: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as rejection:
        load(path, RegistrySettings)
    assert str(rejection.value).startswith(f"{path}: ")
    assert problem in str(rejection.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("docker: {url: 'tcp://10.0.0.1:2375'}", "write unix:///PATH"),
        ("apps: {ports: 9-5}", "write FIRST-LAST"),
        ("apps: {ports: 0-5}", "write FIRST-LAST"),
        ("apps: {memory: 5}", "apps.memory: Expected `int` >= 6"),
        ("registries: [{url: 'registry:7655', key_file: k}]", "registries[0]: `url` is"),
        ("registries: [{url: 'http://a', key_file: k, certificate: c}]", "go together"),
        ("registries: [{url: 'http://a'}]", "missing required field `key_file`"),
        ("keys: [{name: a, value: b, allow: [register]}]", "allowed here: read, scrape, write"),
        ("keys: [{name: a, value: b, allow: [read, scrape], apps: [a]}]", "do not go together"),
        ("keys: [{name: a, value: b, allow: [read], apps: []}]", "keys[0].apps: Expected"),
        (
            "keys: [{name: a, value: b, allow: [read], apps: [Shop]}]",
            "`Shop`, which matches no app",
        ),
    ],
)
def test_a_wrong_agent_setting_is_rejected(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as rejection:
        load(write(tmp_path, text), AgentSettings)
    assert problem in str(rejection.value)


@pytest.mark.parametrize(
    "text",
    [
        'node_secret: {value: "SECRETSECRET-0123456789}',
        "keys: [{name: o, value: SECRETSECRET-0123456789, allow: [read]",
        "keys:\n  - value: SECRETSECRET-0123456789\n   name: x",
        "node_secret: {value: !!int SECRETSECRET-0123456789}",
        "node_secret: {value: SECRETSECRET-0123456789, valu: x}",
        "node_secret: [SECRETSECRET-0123456789]",
    ],
)
def test_a_rejection_never_shows_a_secret(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as rejection:
        load(write(tmp_path, text), RegistrySettings)
    assert "SECRET" not in str(rejection.value)


def test_all_mistakes_of_a_file_are_reported_at_once_each_with_its_path(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        lisen: here
        listen: nowhere
        max_connections: 0
        tls: {key: 5}
        keys:
          - {name: ops, allow: [reed, write, all]}
          - {name: 7, value: a, file: b, allow: []}
          - none
        node_secret: [{file: a, fil: b}, {value: [1]}]
        nodes: {stale_after_seconds: '90', expire_after_seconds: 5, max_mib: -1}
        prometheus: {default_port: 0, ports: {a: 65536, b: c, d: 1}, targets: some}
        log: {level: loud, format: auto}
        """,
    )

    with pytest.raises(ConfigError) as rejection:
        load(path, RegistrySettings)

    reported = [mistake.removeprefix(f"{path}: ") for mistake in rejection.value.mistakes]
    assert sorted(mistake.split(": ")[0] for mistake in reported) == sorted(
        [
            "lisen",
            "`listen`",
            "max_connections",
            "tls",  # no certificate
            "tls.key",
            "keys[0].allow[0]",
            "keys[0].allow[2]",
            "keys[0]",  # neither value nor file
            "keys[1].name",
            "keys[1].allow",
            "keys[1]",  # both of them
            "keys[2]",
            "node_secret[0].fil",
            "node_secret[1].value",
            "nodes.stale_after_seconds",
            "nodes.max_mib",
            "prometheus.default_port",
            "prometheus.ports.a",
            "prometheus.ports.b",
            "prometheus.targets",
            "log.level",
        ]
    )


@pytest.mark.parametrize("allow", ["write", "read, write", "register, write", "read"])
def test_nodes_of_a_key_that_they_cannot_bound_are_a_mistake(tmp_path: Path, allow: str) -> None:
    text = f"keys: [{{name: a, value: b, allow: [{allow}], nodes: ['web-*']}}]"

    with pytest.raises(ConfigError, match="`nodes` needs an `allow` with register and without") as (
        rejection
    ):
        load(write(tmp_path, text), RegistrySettings)

    assert ": keys[0]: " in str(rejection.value)


def test_a_key_that_may_read_and_register_has_nodes(tmp_path: Path) -> None:
    text = "keys: [{name: a, value: b, allow: [read, register], nodes: ['web-*']}]"

    assert load(write(tmp_path, text), RegistrySettings).keys[0].nodes == ("web-*",)


def test_a_rule_for_several_fields_is_reported_beside_a_mistake_in_another_field(
    tmp_path: Path,
) -> None:
    text = "nodes: {stale_after_seconds: 90, expire_after_seconds: 5, max_mib: -1}"

    with pytest.raises(ConfigError) as rejection:
        load(write(tmp_path, text), RegistrySettings)

    assert len(rejection.value.mistakes) == 2
    assert "at least `stale_after_seconds`" in str(rejection.value)


@pytest.mark.parametrize(
    "text", ["registries: [{url: a:7655}]", "registries: [{url: a:7655, key_file: 1}]"]
)
def test_a_rule_is_reported_beside_a_field_that_is_missing_or_wrong(
    tmp_path: Path, text: str
) -> None:
    with pytest.raises(ConfigError) as rejection:
        load(write(tmp_path, text), AgentSettings)

    key_file, url = rejection.value.mistakes
    assert "key_file" in key_file
    assert url.endswith(
        "registries[0]: `url` is `a:7655`; write http://HOST:PORT or https://HOST:PORT"
    )


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yml: cannot be read: No such file"):
        load(tmp_path / "none.yml", AgentSettings)


yaml_text = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*RegistrySettings.__struct_fields__, "name", "value", "allow", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
).map(repr)


@pytest.mark.slow
@given(text=yaml_text | st.text(max_size=60))
def test_whatever_the_file_holds_it_is_settings_or_a_clear_rejection(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = write(tmp_path_factory.mktemp("any"), text.encode("utf-8", "surrogatepass"))
    try:
        outcome: RegistrySettings | str = load(path, RegistrySettings)
    except ConfigError as rejection:
        outcome = str(rejection)
    rejected = isinstance(outcome, str) and outcome.startswith(f"{path}: ") and "\n" not in outcome
    assert rejected or isinstance(outcome, RegistrySettings)


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
