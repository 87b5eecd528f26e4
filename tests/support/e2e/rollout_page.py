"""The page about rolling out to a fleet: its names, and what must hold after its steps."""

from collections.abc import Mapping, Sequence

from tests.support.pages import Page

REGISTRY, FIRST, SECOND, RENAMED = (
    "registry.example.com",
    "web-1.example.com",
    "web-2.example.com",
    "web-3.example.com",
)
WAIT = """
until_status() {  # HOST WORDS: wait until a host's status shows the words
  for _ in $(seq 200); do
    if ssh "root@$1" "$BIN/rollcall-agent" status | tee status.txt | grep -q "$2"; then return; fi
    sleep 0.1
  done
  cat status.txt; return 1
}
until_true() {  # COMMAND: wait until it succeeds
  for _ in $(seq 200); do if "$@" > out.txt 2>&1; then return; fi; sleep 0.1; done
  cat out.txt; return 1
}
serves() {  # FOLDER HOST PORT: the daemon shows the certificate that is in the folder
  openssl s_client -connect "$2:$3" < /dev/null 2> /dev/null | openssl x509 -noout -serial |
    grep -qx "$(openssl x509 -noout -serial -in "$1/tls.crt")"
}
accepted_since() {  # HOST SECONDS: the registry has accepted a heartbeat after that moment
  local last
  last=$(listed "$1" | grep -o '"last_update":[0-9]*')
  [ "${last#*:}" -gt "$2" ]
}
until_accepted() {  # HOST...: wait until the registry has accepted a new heartbeat of each
  local now host
  now=$(($(date +%s) + 1))  # one may be under way
  for host in "$@"; do until_true accepted_since "$host" "$now"; done
}
listed() { ask "https://$REGISTRY:$PORT/nodes/$1"; }
not_listed() { ! listed "$1"; }
"""
# A query is asked again until it shows what is expected.
PROMTOOL = """
promtool() {
  if [ "$1" != query ]; then command promtool "$@"; return; fi
  for _ in $(seq 600); do
    command promtool "$@" > shown.txt 2>&1 || true
    if shows_expected; then cat shown.txt; return; fi
    sleep 0.1
  done
  cat shown.txt prometheus.log; return 1
}
no_alerts() {
  local firing='ALERTS{alertname=~"RollcallAgentDown|RollcallHostStale", alertstate="firing"}'
  [ -z "$(command promtool query instant http://127.0.0.1:9090 "$firing")" ]
}
shows_expected() { for word in $expected; do grep -qF "$word" shown.txt || return 1; done; }
"""
RENEWED = f"""
for host in {FIRST} {SECOND}; do until_true serves $host $host 7656; done
until_true serves registry "$REGISTRY" "$PORT"
until_accepted {FIRST} {SECOND}
"""
# What must hold after each block of a section.
CHECKS: Mapping[str, Sequence[str]] = {
    "3. Set up the registry": [
        # It was not delivered.
        '[ "$(ssh "root@$REGISTRY" stat -c %a:%G /etc/rollcall/node.secret)" = 600:root ]',
        'until_true ask "https://$REGISTRY:$PORT/nodes"',
    ],
    "4. Set up the hosts": [f"until_status {FIRST} taken; until_status {SECOND} taken"],
    "5. Look at the result": [
        f"listed {FIRST} | grep -q service:web; listed {SECOND} | grep -q service:web",
        # Each agent has taken the key of its host, and has no engine here.
        "rollcall apps > apps.txt || true; grep -c 'container engine cannot be' apps.txt | grep 2",
        "sed -i '/ for:/d' prometheus/rules.yml",  # nobody waits here for the patience of alerts
        f"expected='{FIRST}:7656 {SECOND}:7656 {REGISTRY}:7655'",
        f"no_alerts; expected='RollcallAgentDown RollcallHostStale {SECOND}:7656'",
        "",
        "",
    ],
    "6. Renew certificates": [RENEWED],
    "7. Replace the secret of the node keys": [
        f"until_accepted {FIRST} {SECOND}",
        f"until_accepted {FIRST} {SECOND}; until_status {FIRST} taken; until_status {SECOND} taken",
    ],
    "8. Rename or remove a host": [
        f"until_true listed {RENAMED}; until_true not_listed {SECOND}",
        f"not_listed {FIRST}",
        "",  # here the machine lives, and registers again
    ],
}


def rollout_script(page: Page, *, before: str) -> str:
    """Return the page as a script in which each host sends a heartbeat every second."""
    listen = "listen: 0.0.0.0:7656\n"
    script = page.script(checks=CHECKS, before=WAIT + PROMTOOL + before)
    return script.replace(listen, f"{listen}heartbeat_seconds: 1\n")
