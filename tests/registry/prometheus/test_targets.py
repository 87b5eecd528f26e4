"""From labels to target groups."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.message import Node, TargetGroup
from registry.prometheus.address import InvalidTarget, join_target
from registry.prometheus.label_names import sanitize
from registry.prometheus.targets import TargetOptions, meta_labels, targets_by_service
from registry.responses.slices import finish
from tests.support.registry.http_sd import LEGACY_NAME, usable


def node(*labels: str, kv: dict[str, str] | None = None) -> Node:
    return Node(hostname="h1", labels=list(labels), kv=kv or {}, last_update=0)


def groups(
    *labels: str,
    service: str = "web",
    target_options: TargetOptions | None = None,
    posted_from: str = "192.0.2.1",
) -> list[tuple[list[str], dict[str, str]]]:
    found = finish(
        targets_by_service(
            node(*labels), posted_from=posted_from, target_options=target_options or TargetOptions()
        )
    )
    node_targets = found.get(service)
    return [(group.targets, group.labels) for group in node_targets.groups] if node_targets else []


def reasons(*labels: str, target_options: TargetOptions | None = None) -> list[str]:
    found = finish(
        targets_by_service(
            node(*labels), posted_from="192.0.2.1", target_options=target_options or TargetOptions()
        )
    )
    return [remark.reason for remark in found["web"].remarks]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["prometheus:web"], [(["h1:9100"], {})]),
        (["prometheus:web:port:8080"], [(["h1:8080"], {})]),
        (["prometheus:web:port:-"], [(["h1"], {})]),
        (["prometheus:web:host:10.0.0.1"], [(["10.0.0.1:9100"], {})]),
        (["prometheus:web:host:a.example"], [(["a.example:9100"], {})]),
        (["prometheus:web:host:a:81", "prometheus:web:host:b"], [(["a:81", "b:9100"], {})]),
        (["prometheus:web:host:a:81", "prometheus:web:port:82"], [(["a:81"], {})]),
        (["prometheus:web:host:a", "prometheus:web:host:a"], [(["a:9100"], {})]),
        (["prometheus:web:host:2001:db8::1"], [(["[2001:db8::1]:9100"], {})]),
        (["prometheus:web:host:[2001:DB8::1]"], [(["[2001:db8::1]:9100"], {})]),
        (["prometheus:web:host:[2001:db8::1]:80"], [(["[2001:db8::1]:80"], {})]),
        (["prometheus:web:host:::1", "prometheus:web:port:-"], [(["[::1]"], {})]),
        (["prometheus:web:env:prod"], [(["h1:9100"], {"env": "prod"})]),
        (["prometheus:web:url:http://x:1/?a=b"], [(["h1:9100"], {"url": "http://x:1/?a=b"})]),
        (["prometheus:web:note:grüße: 😀"], [(["h1:9100"], {"note": "grüße: 😀"})]),
        (["prometheus:web:env:"], [(["h1:9100"], {"env": ""})]),
        (["prometheus:web:a-b.c:v"], [(["h1:9100"], {"a_b_c": "v"})]),
        (["prometheus:web:1st:v"], [(["h1:9100"], {"_1st": "v"})]),
        (["prometheus:web:é:v"], [(["h1:9100"], {"_": "v"})]),
        (["prometheus:web:a-b:1", "prometheus:web:a_b:2", "prometheus:web:a.b:3"],
         [(["h1:9100"], {"a_b": "2"})]),
        (["prometheus:web:env:1", "prometheus:web:env:2"], [(["h1:9100"], {"env": "2"})]),
        (["prometheus:web:__metrics_path__:/m"], [(["h1:9100"], {"__metrics_path__": "/m"})]),
        (["prometheus:web:__scheme__:https"], [(["h1:9100"], {"__scheme__": "https"})]),
        (["prometheus:web:__scheme__:http"], [(["h1:9100"], {})]),
        (["prometheus:web:__scheme__:HTTPS"], [(["h1:9100"], {})]),
        (["prometheus:web:--scheme--:http", "prometheus:web:__scheme__:https"],
         [(["h1:9100"], {"__scheme__": "https"})]),
        (["prometheus:web:__param_module:x"], [(["h1:9100"], {"__param_module": "x"})]),
        (["prometheus:web:job:evil"], [(["h1:9100"], {})]),
        (["prometheus:web:instance:evil"], [(["h1:9100"], {})]),
        (["prometheus:web:__address__:evil"], [(["h1:9100"], {})]),
        (["prometheus:web:__scrape_interval__:1s"], [(["h1:9100"], {})]),
        (["prometheus:web:--scrape-interval--:1s"], [(["h1:9100"], {})]),
        (["prometheus:web:__meta_rollcall_hostname:evil"], [(["h1:9100"], {})]),
        (["prometheus:web::v"], [(["h1:9100"], {})]),
        (["prometheus:web:port"], []),
        (["prometheus:web:"], []),
        (["prometheus"], []),
        (["prometheus:"], []),
        (["prometheus::port:80"], []),
        (["prometheus:Web"], []),
        (["prometheus:website"], []),
        (["xprometheus:web"], []),
        (["prometheus:web@a:port:1", "prometheus:web@b:port:2"],
         [(["h1:1"], {}), (["h1:2"], {})]),
        (["prometheus:web@b:port:2", "prometheus:web:env:x", "prometheus:web@a"],
         [(["h1:9100"], {"env": "x"}), (["h1:9100"], {}), (["h1:2"], {})]),
        (["prometheus:web@a:port:1", "prometheus:web@a:app:a", "prometheus:web@a:host:x"],
         [(["x:1"], {"app": "a"})]),
    ],
)  # fmt: skip
def test_labels_become_target_groups(
    labels: list[str], expected: list[tuple[list[str], dict[str, str]]]
) -> None:
    assert groups(*labels) == expected


def test_a_scheme_in_the_clear_needs_to_be_allowed() -> None:
    allowed = TargetOptions(allow_labels={"__scheme__"})

    assert groups("prometheus:web:__scheme__:http", target_options=allowed) == [
        (["h1:9100"], {"__scheme__": "http"})
    ]


def test_the_port_is_the_one_configured_for_the_service() -> None:
    target_options = TargetOptions(default_port=1, ports={"postgres": 9187})

    assert groups("prometheus:postgres", service="postgres", target_options=target_options) == [
        (["h1:9187"], {})
    ]
    assert groups("prometheus:web", target_options=target_options) == [(["h1:1"], {})]


def test_the_settings_can_let_labels_through_but_never_the_registrys_own() -> None:
    target_options = TargetOptions(
        allow_labels=["job", "__scrape_interval__", "__meta_x", "__address__"]
    )
    labels = ["job:j", "instance:i", "__scrape_interval__:5s", "__meta_x:m", "__address__:a"]

    found = groups(*[f"prometheus:web:{label}" for label in labels], target_options=target_options)

    assert found == [(["h1:9100"], {"__scrape_interval__": "5s", "job": "j"})]


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        ("host:a b", "host"), ("host:http://a", "port"), ("host:a/b", "host"), ("host:", "host"),
        ("host:10.0.0.1/32", "host"), ("host:a:", "port"), ("host:a:x", "port"),
        ("host:a:0", "port"), ("host:a:65536", "port"), ("host:a:-1", "port"),
        ("host:a:-", "port"), ("host:a:1:2", "host"), ("host:[::1", "host"),
        ("host:[a]:1", "host"), ("host:::1%eth0", "host"), ("host:[::1%a/b]:1", "host"),
        ("host:[::1]x", "host"), ("host:é", "host"), ("host:a@b", "host"),
        ("host:a:\u0663", "port"), ("host:a: 1", "port"), ("host:a:1e3", "port"),
        ("host:a:+1", "port"), ("port:", "port"), ("port:http", "port"), ("port:99999", "port"),
        ("port:000000080", "port"),
    ],
)  # fmt: skip
def test_a_target_that_cannot_be_scraped_is_left_out_and_its_siblings_stay(
    label: str, reason: str
) -> None:
    assert reasons(f"prometheus:web:{label}") == [reason]
    assert groups(f"prometheus:web:{label}") == []
    assert groups(f"prometheus:web:{label}", "prometheus:web:host:ok:1") == [(["ok:1"], {})]


def test_what_is_sanitized_or_withheld_is_remarked() -> None:
    assert reasons("prometheus:web:a-b:c") == ["sanitized"]
    assert reasons("prometheus:web:job:c") == ["held_back"]
    assert reasons("prometheus:web::c") == ["empty"]


def test_a_label_that_is_withheld_for_its_sanitized_name_is_remarked_with_that_name() -> None:
    found = finish(
        targets_by_service(
            node("prometheus:web:\u00c4\u00d6:c"),
            posted_from="192.0.2.1",
            target_options=TargetOptions(),
        )
    )
    [remark] = found["web"].remarks
    assert remark.text == r"label '\xc4\xd6' is sanitized to __, which is not for a node to set"


OWN = TargetOptions(own_only=True)


@pytest.mark.parametrize(
    ("host", "posted_from"),
    [("h1", "x"), ("H1.", "x"), ("h1:81", "x"), ("192.0.2.1", "192.0.2.1"),
     ("192.0.2.1:81", "192.0.2.1"), ("2001:db8:0::1", "2001:db8::1"),
     ("[2001:db8::1]:81", "2001:db8::1")],
)  # fmt: skip
def test_a_node_may_name_itself_where_it_may_name_nothing_else(host: str, posted_from: str) -> None:
    assert groups(f"prometheus:web:host:{host}", target_options=OWN, posted_from=posted_from)


@pytest.mark.parametrize("host", ["h2", "h1.example", "192.0.2.2", "::1", "169.254.169.254:80"])
def test_a_node_may_not_aim_prometheus_elsewhere(host: str) -> None:
    assert groups(f"prometheus:web:host:{host}", target_options=OWN) == []
    assert reasons(f"prometheus:web:host:{host}", target_options=OWN) == ["foreign"]


def test_relabelling_gets_hostname_address_labels_and_kv() -> None:
    labels = ["service:web", "app:a", "app:b", "free text", "x-y:1", ":no key", "url:a:b"]

    found = finish(
        meta_labels(
            node(*labels, kv={"rack": "r1", "agent.id": "i", "apps.states": "a=down"}), "192.0.2.1"
        )
    )
    assert found == {
        "__meta_rollcall_hostname": "h1",
        "__meta_rollcall_address": "192.0.2.1",
        "__meta_rollcall_labels": ",service:web,app:a,app:b,free text,x-y:1,:no key,url:a:b,",
        "__meta_rollcall_label_app": "a,b",
        "__meta_rollcall_label_service": "web",
        "__meta_rollcall_label_url": "a:b",
        "__meta_rollcall_label_x_y": "1",
        "__meta_rollcall_kv_agent_id": "i",
        "__meta_rollcall_kv_rack": "r1",
    }


def test_relabelling_gets_no_label_that_says_what_to_do_with_an_app() -> None:
    directives = ["prometheus:web", "prometheus:web:port:1", "serving:shop:20080", "prometheus"]
    others = ["service:web", "Prometheus:x", "prometheus2:y", "serving-x:1"]

    found = finish(meta_labels(node(*directives, *others), "::1"))
    assert found["__meta_rollcall_labels"] == f",{','.join(others)},"
    assert not {name for name in found if name.endswith(("_label_prometheus", "_serving"))}
    fixed = {"__meta_rollcall_hostname": "h1", "__meta_rollcall_address": "::1"}
    assert finish(meta_labels(node(*directives), "::1")) == fixed


@pytest.mark.slow
@given(st.text())
def test_a_sanitized_name_is_always_one_that_prometheus_takes(name: str) -> None:
    sanitized = sanitize(name)

    assert (sanitized == "") == (name == "")
    assert not name or LEGACY_NAME.fullmatch(sanitized)
    assert sanitize(sanitized) == sanitized


@given(st.text(max_size=40), st.one_of(st.text(max_size=8), st.just("-")))
def test_an_address_can_be_scraped_or_is_none(host: str, port: str) -> None:
    with suppress(InvalidTarget):
        assert usable(join_target(host, port))


@pytest.mark.slow
@given(st.lists(st.text(st.sampled_from("prometheus:web@hostport-_[]./1é "), max_size=40)))
def test_any_labels_give_groups_without_an_error(labels: list[str]) -> None:
    found = finish(
        targets_by_service(node(*labels), posted_from="::1", target_options=TargetOptions())
    )
    for node_targets in found.values():
        for group in node_targets.groups:
            assert isinstance(group, TargetGroup)
            assert group.targets
