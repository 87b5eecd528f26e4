"""What a heartbeat says, and which labels it has room for."""

from collections import Counter
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.reporting.heartbeat import (
    AgentAddress,
    Host,
    HostedApp,
    HostedApps,
    Room,
    app_labels,
    fit_labels,
)
from clients.message import MAX_BODY_BYTES, MAX_LABEL, MAX_LABELS, MAX_VALUE, Node
from registry.prometheus.targets import TargetOptions, targets_by_service
from registry.responses.slices import finish

# For each app: of each of its services, how many labels it has, and how long they are.
SERVICES = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 60)), max_size=8)
IDLE = HostedApps(apps=(), docker_state="running", docker_version="20.10.24")


def bytes_of(labels: list[str]) -> int:
    return sum(len(f'"{label}",') for label in labels)


@given(st.lists(SERVICES, max_size=6), st.integers(0, 120), st.integers(0, 6000))
def test_each_app_gets_its_equal_share_of_any_room(
    apps: list[list[tuple[int, int]]], max_labels: int, max_bytes: int
) -> None:
    by_app = {
        f"a{index}": [f"app:a{index}"]
        + [
            f"prometheus:s{service}@a{index}:k{number}:{'x' * length}"
            for service, (count, length) in enumerate(services)
            for number in range(count)
        ]
        for index, services in enumerate(apps)
    }
    first = ["service:web", *(labels[0] for labels in by_app.values())]

    fitted = fit_labels(["service:web"], by_app, Room(max_labels, max_bytes))

    sent = set(fitted.labels)
    every = ["service:web", *(label for labels in by_app.values() for label in labels)]
    assert fitted.labels == [label for label in every if label in sent]
    assert fitted.left_out == len(every) - len(sent)
    assert bool(fitted.faults) == bool(fitted.left_out)
    assert len(sent) <= max_labels
    assert bytes_of(fitted.labels) <= max_bytes
    if len(first) <= max_labels and bytes_of(first) <= max_bytes:
        assert set(first) <= sent
        labels_left = max_labels - len(first)
        bytes_left = max_bytes - bytes_of(first)
        for labels in by_app.values():
            its_own = labels[1:]
            if (
                len(its_own) * len(by_app) <= labels_left
                and bytes_of(its_own) * len(by_app) <= bytes_left
            ):
                assert set(labels) <= sent
    whole = Counter(label.rpartition(":k")[0] for label in every)
    assert all(
        whole[service] == count
        for service, count in Counter(label.rpartition(":k")[0] for label in sent).items()
        if service
    )


def test_a_service_whose_closing_label_is_too_long_is_not_sent_with_the_name_of_another_app() -> (
    None
):
    service = "s" * 992
    forged = f"prometheus:{service}@aa-99999:app:shop"
    closing = f"prometheus:{service}@aa-99999:app:aa-99999"
    assert len(forged) <= MAX_LABEL < len(closing)

    fitted = fit_labels([], {"aa-99999": ["app:aa-99999", forged, closing]}, Room(4096, 2**20))

    assert fitted.labels == ["app:aa-99999"]
    assert (fitted.left_out, len(fitted.faults)) == (2, 1)


def app(
    name: str,
    *labels: str,
    http_port: int = 20001,
    running: bool = True,
    stopped: bool = False,
    healthy: bool | None = None,
    crashing: bool = False,
    failed: bool = False,
) -> HostedApp:
    return HostedApp(
        name=name,
        http_port=http_port,
        labels=labels,
        running=running,
        healthy=healthy,
        stopped=stopped,
        crashing=crashing,
        failed=failed,
    )


def host(
    *labels: str, more: Iterable[str] = (), faults: list[str] | None = None, tls: bool = False
) -> Host:
    return Host(
        address=AgentAddress("web-1", "http://web-1:7656", 7656, tls),
        labels=labels,
        file_labels=lambda: more,
        kv={"rack": "r12", "agent.id": "id-1", "host.cpus": "2"},
        warn=(faults if faults is not None else []).append,
    )


def test_the_labels_are_configured_ones_then_files_then_apps_then_the_agents_own() -> None:
    hosted_apps = HostedApps(apps=(app("blog"),), docker_state="running", docker_version=None)

    heartbeat = host("service:web", more=["site:north"]).heartbeat(hosted_apps)

    assert heartbeat.labels == [
        "service:web",
        "site:north",
        "app:blog",
        "prometheus:rollcall:port:7656",
    ]


def test_with_tls_prometheus_has_to_scrape_by_https() -> None:
    assert host(tls=True).heartbeat(IDLE).labels == [
        "prometheus:rollcall:port:7656",
        "prometheus:rollcall:__scheme__:https",
    ]


def test_the_kv_hold_configuration_facts_address_engine_and_counts() -> None:
    apps = (
        app("a", healthy=True),
        app("b", running=False),
        *(app(name, running=False, stopped=True) for name in "cde"),
        *(app(name, healthy=False) for name in "fg"),
    )
    hosted_apps = HostedApps(apps=apps, docker_state="running", docker_version="20.10.24")

    assert host().heartbeat(hosted_apps).kv == {
        "rack": "r12",
        "agent.id": "id-1",
        "agent.url": "http://web-1:7656",
        "host.cpus": "2",
        "docker.state": "running",
        "docker.version": "20.10.24",
        "apps.total": "7",
        "apps.running": "3",
        "apps.stopped": "3",
        "apps.unhealthy": "2",
        "apps.states": "a=running,b=down,c=stopped,d=stopped,e=stopped,f=unhealthy,g=unhealthy",
    }


def states(*apps: HostedApp, docker_state: str = "running") -> str | None:
    hosted_apps = HostedApps(apps=apps, docker_state=docker_state, docker_version="20.10.24")
    return host().heartbeat(hosted_apps).kv.get("apps.states")


def test_the_state_of_each_app_is_one_word() -> None:
    assert states(
        app("bare", running=False, failed=True),
        app("blog", healthy=False),
        app("jobs", running=False, healthy=False, crashing=True),
        app("mail", running=False),
        app("old", running=False, stopped=True),
        app("shop", healthy=True),
    ) == ("bare=failed,blog=unhealthy,jobs=crashing,mail=down,old=stopped,shop=running")


def test_the_states_are_left_out_where_they_are_too_long_or_not_known() -> None:
    name = "a" * (MAX_VALUE - len("=running"))

    assert states(app(name)) == f"{name}=running"
    assert states(app(f"{name}a")) is None
    assert states(app("shop", running=False), docker_state="unreachable") is None
    assert states() is None


def test_nothing_but_a_change_changes_the_heartbeat() -> None:
    one = host("service:web", more=["site:north"])

    assert one.heartbeat(IDLE) == one.heartbeat(IDLE)


def test_an_app_is_a_target_group_of_its_own_for_each_service() -> None:
    shop = app("shop", "tier:gold", "prometheus:web:zone:a", "prometheus:queue", http_port=20002)

    assert list(app_labels(shop)) == [
        "app:shop",
        "prometheus:web@shop:zone:a",
        "prometheus:queue@shop",
        "prometheus:web@shop:port:20002",
        "prometheus:web@shop:app:shop",
        "prometheus:queue@shop:port:20002",
        "prometheus:queue@shop:app:shop",
    ]


def test_an_app_that_names_a_port_for_a_service_gets_that_one_there_alone() -> None:
    shop = app("shop", "prometheus:web:port:9100", "prometheus:queue", http_port=20002)

    labels = list(app_labels(shop))

    assert "prometheus:web@shop:port:9100" in labels
    assert "prometheus:web@shop:port:20002" not in labels
    assert "prometheus:queue@shop:port:20002" in labels


def test_a_value_keeps_its_colons() -> None:
    labels = list(app_labels(app("shop", "prometheus:web:host:[2001:db8::1]:80")))

    assert "prometheus:web@shop:host:[2001:db8::1]:80" in labels


@pytest.mark.parametrize(
    "own",
    [
        ["prometheus:web:app:shop"],
        ["prometheus:web:app:a", "prometheus:web:app:shop"],
        ["prometheus:web:app:shop", "prometheus:web:app:a", "prometheus:web:app:"],
        ["prometheus:web@shop:app:a", "prometheus:web@shop:app:shop", "prometheus:web"],
    ],
)
def test_no_label_of_an_app_makes_a_target_of_another_app(own: list[str]) -> None:
    apps = (app("a", *own, http_port=20001), app("shop", "prometheus:web", http_port=20002))
    hosted_apps = HostedApps(apps=apps, docker_state="running", docker_version=None)
    labels = host().heartbeat(hosted_apps).labels

    node = Node(hostname="web-1", last_update=0, labels=labels, kv={})
    found = finish(targets_by_service(node, posted_from="::1", target_options=TargetOptions()))[
        "web"
    ]

    targets = {(*group.targets, group.labels["app"]) for group in found.groups}
    assert targets == {("web-1:20001", "a"), ("web-1:20002", "shop")}


def test_a_label_that_makes_no_target_at_the_registry_makes_none_here() -> None:
    shop = app("shop", "prometheus:", "prometheus", "prometheus:web:zone", "prometheus::zone:a")

    assert list(app_labels(shop)) == ["app:shop"]


def test_what_a_registry_would_reject_is_left_out_and_reported_once() -> None:
    faults: list[str] = []
    long = app("shop", f"prometheus:web:zone:{'z' * 1010}")
    hosted_apps = HostedApps(apps=(long,), docker_state="running", docker_version=None)
    one = host("service:web", faults=faults)

    for _ in range(2):
        one.heartbeat(hosted_apps)

    assert one.heartbeat(hosted_apps).labels[:2] == ["service:web", "app:shop"]
    assert len(faults) == 1
    assert "1024" in faults[0]


def test_too_many_labels_cost_neither_the_heartbeat_nor_the_agents_own_target() -> None:
    faults: list[str] = []
    more = [f"n:{number}" for number in range(MAX_LABELS + 10)]

    labels = host(more=more, faults=faults).heartbeat(IDLE).labels

    assert len(labels) == MAX_LABELS
    assert labels[-1] == "prometheus:rollcall:port:7656"
    assert len(faults) == 1


@pytest.mark.parametrize(
    ("size", "services"), [(0, 1024), (950, 64)], ids=["in number", "in bytes"]
)
def test_an_app_with_very_many_labels_costs_no_other_app_its_targets(
    size: int, services: int
) -> None:
    faults: list[str] = []
    flood = [f"prometheus:{number:x<{size}}" for number in range(services)]
    few = app("shop", "prometheus:shop", "prometheus:web:zone:a")
    apps = (*(app(f"aa-{number}", *flood) for number in range(6)), few)
    one = host("service:web", more=["prometheus:node"], faults=faults)

    heartbeat = one.heartbeat(HostedApps(apps=apps, docker_state="running", docker_version="20"))

    every = {
        "service:web",
        "prometheus:node",
        "prometheus:rollcall:port:7656",
        *(label for each in apps for label in app_labels(each)),
    }
    sent = [sum(f"@{each.name}:app:" in label for label in heartbeat.labels) for each in apps[:-1]]
    assert set(heartbeat.labels) <= every
    assert {*app_labels(few), *(f"app:{each.name}" for each in apps)} <= set(heartbeat.labels)
    assert {"service:web", "prometheus:node"} <= set(heartbeat.labels)
    assert max(sent) - min(sent) <= 1
    assert min(sent) > services / 10
    assert len(heartbeat.labels) <= MAX_LABELS
    # As NATS takes it by default, with what a registry adds.
    assert len(msgspec.json.encode(heartbeat)) <= MAX_BODY_BYTES - 2048
    left_out = len(every) - len(heartbeat.labels)
    assert (one.left_out, heartbeat.kv["labels.left_out"]) == (left_out, str(left_out))
    assert faults == [
        f"services of app aa-{number} beyond its share of a heartbeat" for number in range(6)
    ]


@pytest.mark.slow
@given(st.lists(st.text(max_size=40).map("prometheus:".__add__)), st.integers(1, 65535))
def test_whatever_an_apps_labels_are_each_group_is_the_apps_own(
    labels: list[str], port: int
) -> None:
    given_labels = list(app_labels(app("shop", *labels, http_port=port)))

    assert given_labels[0] == "app:shop"
    for label in given_labels[1:]:
        service = label.split(":", 2)[1]
        assert service.endswith("@shop")
        assert f"prometheus:{service}:app:shop" in given_labels
        assert any(one.startswith(f"prometheus:{service}:port:") for one in given_labels)
