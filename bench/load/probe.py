"""A probe that measures the latency of heartbeats in a process of its own."""

import multiprocessing
import time
from collections.abc import Sequence
from http import HTTPStatus
from multiprocessing.connection import Connection
from typing import NamedTuple

import requests

TIMEOUT_SECONDS = 10.0


class ProbeOptions(NamedTuple):
    """What a probe reports to, and the pause between two heartbeats.

    `verify` is a CA bundle, or empty for the system's; `cert` is a certificate and its key.
    With several `hostnames`, it reports as one host after the other.
    """

    url: str
    key: str
    verify: str
    cert: tuple[str, str] | None
    interval_seconds: float = 0.1
    hostnames: Sequence[str] = ("probe.fleet.test",)


class Attempts(NamedTuple):
    """What became of heartbeats.

    `latencies` are those of all attempts, in seconds. `rejected` counts the attempts without a
    status of 200: another status, no connection, no answer in time.
    """

    latencies: list[float]
    rejected: int


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

    def attempts(self) -> Attempts:
        """Return the heartbeats since the last call."""
        self._ours.send("attempts")
        attempts: Attempts = self._ours.recv()
        return attempts

    def end(self) -> None:
        """End the process."""
        self._process.terminate()


def probe(options: ProbeOptions, pipe: Connection) -> None:
    """Report after each interval; send the attempts on request.

    Every other heartbeat of a host changes its node.
    """
    url, key, verify, cert, interval_seconds, hostnames = options
    session, number, latencies, rejected = requests.Session(), 0, [], 0
    session.headers["Authorization"] = f"Bearer {key}"
    session.trust_env = False  # a CA bundle in the environment would override `verify`
    session.verify, session.cert = verify or True, cert
    while True:
        round_, host = divmod(number, len(hostnames))
        number += 1
        heartbeat = {"labels": [f"number:{round_ // 2}"], "kv": {"agent.id": "probe"}}
        began = time.monotonic()
        try:
            answer = session.post(
                f"{url}/nodes/{hostnames[host]}", json=heartbeat, timeout=TIMEOUT_SECONDS
            )
            rejected += answer.status_code != HTTPStatus.OK
        except requests.RequestException:
            rejected += 1
        latencies.append(time.monotonic() - began)
        if pipe.poll(interval_seconds):
            pipe.recv()
            pipe.send(Attempts(latencies, rejected))
            latencies, rejected = [], 0
