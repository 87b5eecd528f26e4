"""What is asked of either daemon."""

import json
from random import Random

from clients.message import MAX_BODY_BYTES
from tests.fuzz.engine import ABSENT_IMAGE, IMAGE
from tests.fuzz.generator import Target

PATHS = ["/healthz", "/swagger.json", "/nothing", "/", "*", "//", "/nodes/%zz", "/nodes/%41"]
# Bodies around the size above which the lane leaves them, and around the limit, filled up with
# spaces: with large nodes, a list would not be sent at once.
LARGE_SHARE = 0.03
LARGE_BODIES = [47 * 1024, 49 * 1024, MAX_BODY_BYTES, MAX_BODY_BYTES + 1]
HOSTS = 30  # so that the list of them is sent at once, whatever the client sends behind


def registry_target(key: str, client: int) -> Target:
    """Return what a client asks of a registry."""
    label = f"client-{client}"
    odd = ["/nodes/.", "/nodes/a/b", "/prometheus/web"]

    def path(rng: Random) -> str:
        return rng.choice([f"/nodes/{label}-{rng.randrange(HOSTS)}"] * 8 + odd)

    return Target(
        change=path,
        any_method=path,
        reads=[
            *(*PATHS, f"/nodes?label={label}", f"/nodes?search={label}-", "/nodes?nonsense"),
            # Of a known host, it has the age in tenths of a second, which two registries differ in.
            *(f"/prometheus/{label}", f"/nodes/{label}-unknown/explain"),
        ],
        body=lambda rng: heartbeat(rng, label),
        key=key,
    )


def heartbeat(rng: Random, label: str) -> bytes:
    """Return the body of a heartbeat, in one of a few versions."""
    labels = [label, f"prometheus:{label}", *[f"l:{rng.randrange(3)}"] * rng.randrange(3)]
    value = "x" * rng.choice([0, 1, 10, 300, 3000])
    body: dict[str, object] = {"labels": labels, "kv": {"k": value}}
    if rng.random() < 0.1:
        body[rng.choice(["hostname", "nonsense", "labels"])] = rng.choice(["a", 1, None, []])
    encoded = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode()
    if rng.random() < LARGE_SHARE:
        return encoded.ljust(rng.choice(LARGE_BODIES))
    return encoded


def agent_target(key: str, client: int) -> Target:
    """Return what a client asks of an agent; its engine is an `empty_engine`."""
    name = f"client-{client}"
    app = f"/v1/apps/{name}"
    paths = [
        *(app, f"{app}/start", f"{app}/labels", f"{app}/keys", "/v1/apps?nonsense", "/v1/nothing"),
        *(f"{app}?dry_run=true", f"{app}/stop?dry_run=1", f"{app}/rebuild?dry_run=x"),
    ]
    creates = ["/v1/apps"] * 3 + ["/v1/apps?dry_run=true"] * 2
    return Target(
        change=lambda rng: rng.choice(paths + creates),
        # Not those of `creates`: the list of all apps is not of this client alone.
        any_method=lambda rng: rng.choice(paths),
        reads=[
            *(*PATHS, f"/v1/apps?label=client:{client}", app, f"{app}/logs?tail=1"),
            *(f"{app}/logs?tail=x", "/v1/events?nonsense"),
        ],
        body=lambda rng: app_body(rng, name),
        key=key,
        only_get=[f"{app}/events"],
    )


def app_body(rng: Random, name: str) -> bytes:
    """Return a body for one of an agent's operations, or for none."""
    fields: list[dict[str, object]] = [
        {"name": name, "image": IMAGE},
        {"name": name, "image": IMAGE, "data": rng.choice([["/data"], ["data"], "/data"])},
        {"name": name, "image": ABSENT_IMAGE},
        {"Value": "key:value"},
        {"cpu": rng.choice([-1, 0, 100, "x"])},
        {},
    ]
    return json.dumps(rng.choice(fields)).ljust(rng.choice([0, 10, 3000, 70_000])).encode()
