"""One host that sends large heartbeats over several connections, each with a change."""

import http.client
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count

CONNECTIONS = 4
# With 4,000 services, some 800 KB.
LABELS = ",".join(f'"prometheus:s{n}:l{n}:{"v" * 170}"' for n in range(4000))
TIMEOUT_SECONDS = 60


class LargePosts:
    """Sends heartbeats of one host, which each change its node, as fast as they are answered."""

    def __init__(self, port: int, hostname: str, key: str) -> None:
        self._port = port
        self._path = f"/nodes/{hostname}"
        self._headers = {"Authorization": f"Bearer {key}"}
        self._numbers = count()

    def send(self, seconds: float) -> Mapping[int, int]:
        """Send for so long over all connections; return how many answers had which status."""
        ends = time.monotonic() + seconds
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            found = threads.map(lambda _: self._client(ends), range(CONNECTIONS))
            return sum(found, Counter[int]())

    def _client(self, ends: float) -> Counter[int]:
        statuses = Counter[int]()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_SECONDS)
        while time.monotonic() < ends:
            body = f'{{"labels":[{LABELS}],"kv":{{"number":"{next(self._numbers):06}"}}}}'
            connection.request("POST", self._path, body=body, headers=self._headers)
            response = connection.getresponse()
            response.read()
            statuses[response.status] += 1
        connection.close()
        return statuses
