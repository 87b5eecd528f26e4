"""The load of the registry's benchmark: wrk with prepared requests, and paced heartbeats."""

import asyncio
import re
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

KEY = "bench-key-0123456789abcdef"

MAX_PREPARED_HOSTS = 100_000
LABELS = '["service:web","env:prod","app:shop","region:eu-west-1","prometheus:rollcall:port:7656"]'
BODY = (
    '{"labels":' + LABELS + ',"kv":{"agent.id":"a-%06d",'
    '"agent.url":"http://host-%06d.example.com:7656","agent.version":"1.0.0",'
    '"apps.running":"%d","apps.total":"3","host.arch":"x86_64","host.cpus":"8",'
    '"host.kernel":"6.1.0-18-amd64","host.memory_mib":"16384","host.os":"Debian 12"}}'
)

# Each thread prepares all its requests before it starts, so that the generator costs little. With
# two alternating bodies for each host, every request changes its node.
POSTS = """
local alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'
local function base64(text)
  while #text %% 3 ~= 0 do text = text .. ' ' end
  return (text:gsub('...', function(three)
    local a, b, c = three:byte(1, 3)
    local bits = a * 65536 + b * 256 + c
    local function letter(shift)
      local at = math.floor(bits / shift) %% 64 + 1
      return alphabet:sub(at, at)
    end
    return letter(262144) .. letter(4096) .. letter(64) .. letter(1)
  end))
end
local requests, at = {}, 0
local template, fleet
function init(arguments)
  local kind, bodies, hosts = arguments[1], tonumber(arguments[2]), tonumber(arguments[3])
  local first = tonumber(arguments[4])
  local headers = {Authorization = 'Bearer %(key)s', ['Content-Type'] = 'application/json'}
  if kind == 'formatted' then -- for too many to prepare: each is made when it is sent
    local mark = '987654'
    local body = string.format('%(body)s', mark, mark, 1)
    local post = wrk.format('POST', '/nodes/host-' .. mark .. '.example.com', headers, body)
    template, fleet = post:gsub(mark, '%%%%06d'), hosts
    return
  end
  for round = 1, bodies do for n = first, first + hosts - 1 do
    local host = string.format('host-%%06d.example.com', n)
    local body = string.format('%(body)s', n, n, round)
    if kind == 'etcd' then
      local put = '{"key":"' .. base64(host) .. '","value":"' .. base64(body) .. '"}'
      requests[#requests + 1] = wrk.format('POST', '/v3/kv/put', {}, put)
    else
      requests[#requests + 1] = wrk.format('POST', '/nodes/' .. host, headers, body)
    end
  end end
end
function request()
  if template then
    at = (at + 1) %% fleet
    return string.format(template, at, at, at)
  end
  at = at %% #requests + 1
  return requests[at]
end
"""
GETS = """
wrk.headers['Authorization'] = 'Bearer %(key)s'
wrk.headers['X-Prometheus-Refresh-Interval-Seconds'] = '60'
"""


class Result(NamedTuple):
    """The result of wrk; `bad` counts answers other than 200, and broken connections."""

    rate: float
    p99: str
    bad: int
    answers: int


class Wrk:
    """Runs wrk, the load generator."""

    def __init__(self, folder: Path, *, seconds: int) -> None:
        self._seconds = seconds
        self._posts = folder / "posts.lua"
        self._gets = folder / "gets.lua"
        self._posts.write_text(POSTS % {"key": KEY, "body": BODY.replace("\n", "")})
        self._gets.write_text(GETS % {"key": KEY})

    def posts(
        self,
        port: int,
        *,
        connections: int,
        kind: str = "node",
        bodies: int = 1,
        hosts: int = 1000,
        first: int = 0,
        seconds: int | None = None,
    ) -> Result:
        """Send heartbeats of the hosts in turn; with two bodies, each one changes its node.

        `first` is the number of the first host.
        The kind `formatted` makes each request when it is sent, as is done for more hosts than can
        be prepared.
        """
        if hosts > MAX_PREPARED_HOSTS:
            kind = "formatted"
        arguments: list[object] = ["-s", self._posts, f"http://127.0.0.1:{port}", "--"]
        arguments += [kind, bodies, hosts, first]
        return self._run(connections, *arguments, seconds=seconds or self._seconds)

    def gets(self, port: int, path: str, *, connections: int = 32) -> Result:
        """Send GET requests for one path."""
        url = f"http://127.0.0.1:{port}{path}"
        return self._run(connections, "-s", self._gets, url, seconds=self._seconds)

    def _run(self, connections: int, *arguments: object, seconds: int) -> Result:
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}", "--latency"]
        done = subprocess.run(
            [*command, *map(str, arguments)],
            check=True,
            capture_output=True,
            text=True,
            timeout=seconds + 60,
        )
        rejected = re.search(r"Non-2xx or 3xx responses: (\d+)", done.stdout)
        broken = re.search(r"Socket errors: (.*)", done.stdout)
        lost = sum(map(int, re.findall(r"\d+", broken[1]))) if broken else 0
        rate = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
        p99 = re.search(r"99%\s+(\S+)", done.stdout)
        assert rate is not None, done.stdout
        bad = (int(rejected[1]) if rejected else 0) + lost
        return Result(float(rate[1]), p99[1] if p99 else "?", bad, int(float(rate[1]) * seconds))


class SteadyLoad:
    """Heartbeats at a steady rate, over kept-alive connections; with `changes`, each is new."""

    def __init__(
        self, port: int, *, rate: int, hosts: int, connections: int = 20, changes: bool = False
    ) -> None:
        self._port = port
        self._changes = changes
        self._pause = connections / rate
        self._hosts = hosts
        self._connections = connections
        self._milliseconds: list[float] = []
        self._bad = 0

    async def run(self, seconds: float) -> tuple[float, float, int]:
        """Send for this long; return the rate, the p99 in milliseconds, and the bad answers."""
        ends = time.monotonic() + seconds
        await asyncio.gather(*[self._client(i, ends) for i in range(self._connections)])
        found = sorted(self._milliseconds)
        return len(found) / seconds, found[int(len(found) * 0.99)], self._bad

    async def _client(self, number: int, ends: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        due = time.monotonic() + self._pause * number / self._connections
        host, sent = number, 0
        while due < ends:
            await asyncio.sleep(max(due - time.monotonic(), 0))
            due += self._pause
            host = (host + self._connections) % self._hosts
            sent += self._changes
            writer.write(post(host, sent))
            began = time.perf_counter()
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"Content-Length: (\d+)", head)
            await reader.readexactly(int(length[1]) if length else 0)
            self._milliseconds.append((time.perf_counter() - began) * 1000)
            self._bad += not head.startswith(b"HTTP/1.1 200 ")
        writer.close()


def post(host: int, number: int) -> bytes:
    """Return the bytes of a heartbeat's request; another number is a change."""
    body = BODY % (host, host, number)
    return (
        f"POST /nodes/host-{host:06}.example.com HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {KEY}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()
