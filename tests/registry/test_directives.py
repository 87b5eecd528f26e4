"""Labels that look like a misspelt directive, and those that only resemble one."""

import pytest

from registry.directives import misspelt


@pytest.mark.parametrize(
    ("label", "meant"),
    [
        ("Prometheus:shop", "prometheus:shop"),
        ("PROMETHEUS:shop:port:9100", "prometheus:shop:port:9100"),
        ("promethues:shop", "prometheus:shop"),
        ("prometeus:shop", "prometheus:shop"),
        ("prometheus=shop", "prometheus:shop"),
        ("prometheus :shop", "prometheus:shop"),
        (" prometheus:shop", "prometheus:shop"),
        ("prometheus:shop:prot:9100", "prometheus:shop:port:9100"),
        ("prometheus:shop:Port:9100", "prometheus:shop:port:9100"),
        ("prometheus:shop:ports:9100", "prometheus:shop:port:9100"),
        ("prometheus:shop@2:hots:10.0.0.1", "prometheus:shop@2:host:10.0.0.1"),
        ("prometheus:shop:hst:[::1]", "prometheus:shop:host:[::1]"),
        ("prometheus:shop:9100", "prometheus:shop:port:9100"),
        ("prometheus:shop:port", "prometheus:shop:KEY:VALUE"),
    ],
)
def test_a_misspelt_directive_is_reported_with_what_may_be_meant(label: str, meant: str) -> None:
    reported = misspelt(label)

    assert reported is not None
    assert reported.endswith(f"did you mean {meant}?")


@pytest.mark.parametrize("label", ["prometheus", "prometheus:", "Prometheus", "prometheus:@a"])
def test_a_directive_without_a_service_is_reported(label: str) -> None:
    assert "names no service" in (misspelt(label) or "")


@pytest.mark.parametrize(
    "label",
    [
        "prometheus:shop",
        "prometheus:shop@2",
        "prometheus:shop:port:9100",
        "prometheus:shop:host:[::1]",
        "prometheus:shop:team:port",
        "prometheus:shop:post:1",
        "prometheus:shop:sort:1",
        "prometheus:shop:__scheme__:https",
        "prometheus:shop::",
        "app:prometheus",
        "service:prometheus:prot:1",
        "prom:shop",
        "prometheus-rules:shop",
        "promotion:shop",
        "x",
        "",
        "x" * 1024,
    ],
)
def test_other_labels_are_left_alone(label: str) -> None:
    assert misspelt(label) is None
