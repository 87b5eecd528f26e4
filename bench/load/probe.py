"""A probe that measures the latency of heartbeats in a process of its own."""

import multiprocessing
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import NamedTuple

import requests


class ProbeOptions(NamedTuple):
    """What a probe reports to, and the pause between two heartbeats.

    `verify` is a CA bundle, or empty for the system's; `cert` is a certificate and its key.
    """

    url: str
    key: str
    verify: str
    cert: tuple[str, str] | None
    interval_seconds: float = 0.1


class Probe:
    """A host that reports from a process of its own, and measures the latency of each heartbeat.

    Latencies that the simulator measures include the time in which it is busy with other hosts.
    """

    def __init__(self, options: ProbeOptions) -> None:
        self._ours, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(
            target=probe, args=(options, theirs), daemon=True
        )
        self._process.start()

    def latencies(self) -> list[float]:
        """Return the latency of each heartbeat since the last call, in seconds."""
        self._ours.send("latencies")
        latencies: list[float] = self._ours.recv()
        return latencies

    def end(self) -> None:
        """End the process."""
        self._process.terminate()


def probe(options: ProbeOptions, pipe: Connection) -> None:
    """Report after each interval, every other time with a change; send the latencies on request."""
    url, key, verify, cert, interval_seconds = options
    session, number, latencies = requests.Session(), 0, []
    session.headers["Authorization"] = f"Bearer {key}"
    session.trust_env = False  # a CA bundle in the environment would override `verify`
    session.verify, session.cert = verify or True, cert
    while True:
        number += 1
        heartbeat = {"labels": [f"number:{number // 2}"], "kv": {"agent.id": "probe"}}
        began = time.monotonic()
        with suppress(requests.RequestException):
            answer = session.post(f"{url}/nodes/probe.fleet.test", json=heartbeat, timeout=10)
            answer.raise_for_status()
            latencies.append(time.monotonic() - began)
        if pipe.poll(interval_seconds):
            pipe.recv()
            pipe.send(latencies)
            latencies = []
