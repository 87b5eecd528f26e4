"""Simulates the peak of heartbeats after an outage, by the factor of the back-off.

Hosts send a heartbeat every 30 s at random phases. After a failure, a host waits with full jitter
up to a bound that grows by the factor from 1 s to 30 s. Prints the busiest second after the
registry's return, as a multiple of the steady rate.

    python bench/backoff_simulation.py
"""

import argparse
import random
from collections import Counter

HEARTBEAT_SECONDS = 30.0
OUTAGES = (1, 2, 5, 10, 20, 30, 60, 300)


def busiest_second(hosts: int, factor: int, outage: float) -> float:
    """Return the ratio of the peak rate to the steady rate; ``outage`` is in seconds."""
    arrivals: Counter[int] = Counter()
    for _ in range(hosts):
        at, bound = random.uniform(0, HEARTBEAT_SECONDS), 1.0
        while at < outage:
            at += random.uniform(0, bound)
            bound = min(bound * factor, HEARTBEAT_SECONDS)
        arrivals[int(at - outage)] += 1
    return max(arrivals.values()) / (hosts / HEARTBEAT_SECONDS)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=40_000)
    hosts = parser.parse_args().hosts
    print("factor  after an outage of " + "  ".join(f"{outage:>4} s" for outage in OUTAGES))
    for factor in (2, 3, 4, 8):
        peaks = [busiest_second(hosts, factor, outage) for outage in OUTAGES]
        print(f"{factor:>6}  {'':19}" + "  ".join(f"{peak:>5.1f}x" for peak in peaks))


if __name__ == "__main__":
    main()
