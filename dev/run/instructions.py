"""What `make run` prints: lines to paste, and what does not work yet."""

import os
import shlex
import shutil
import sys
from pathlib import Path

from dev.run.missing import Missing, install, needs_root
from dev.run.state import DevState

# curl sends requests to such a proxy, also those to 127.0.0.1 if `no_proxy` does not name it.
PROXIES = ("http_proxy", "all_proxy", "ALL_PROXY")
COMMAND_LINES = """\
  {rollcall} login http://{registry} --key-file {key_file} --agent-key same
  {rollcall} apps
"""
REGISTRY_LINES = """\
  {curl} http://{registry}/nodes
  {curl} 'http://{registry}/prometheus/rollcall?format=http_sd'
"""
APP_LINES = """\
  {curl} -d '{{"name": "{app}", "image": "{image}"}}' http://{agent}/v1/apps
  {curl} http://{agent}/v1/apps
  {curl} -X DELETE http://{agent}/v1/apps/{app}
"""
ALL = f"""\

Paste these into another terminal:

{REGISTRY_LINES}{APP_LINES}
They list the nodes and the targets for Prometheus, then create, list and delete an app (its own
page is on the http_port in the answer). The registry's page is http://{{registry}}/, the agent's
http://{{agent}}/. The key for both is in {{folder}}/ops.key; keys, settings and databases are in
that folder. A Prometheus asks the registry with scraper.key there, and the agent with agents.key.

The command rollcall does the same, once it is logged in:

{COMMAND_LINES}
Ctrl-C ends the registry and the agent; apps run on while a Docker Engine does.
"""
WITHOUT_APPS = f"""\

The registry and the agent's page work. Paste these into another terminal:

{REGISTRY_LINES}
They list the nodes and the targets for Prometheus. The registry's page is http://{{registry}}/, the
agent's http://{{agent}}/. The key for both is in {{folder}}/ops.key; keys, settings and databases
are in that folder. A Prometheus asks the registry with scraper.key there, and the agent with
agents.key.

The command rollcall does the same, once it is logged in:

{COMMAND_LINES}
{{lacking}}Ctrl-C ends the registry and the agent.
"""
FOLLOWING = "The lines for apps follow here as soon as apps work.\n"
APPS = f"""\

Apps work now. Paste these, too:

{APP_LINES}
They create, list and delete an app (its own page is on the http_port in the answer).
"""


class Instructions:
    """The texts for a state, where apps are tried with an app and an image of these names."""

    def __init__(self, state: DevState, app: str, image: str) -> None:
        self._words = {
            "registry": state.registry,
            "agent": state.agent,
            "folder": str(state.folder),
            "rollcall": shlex.quote(str(Path(sys.executable).with_name("rollcall"))),
            "key_file": shlex.quote(str(state.folder / "ops.key")),
            "curl": f"curl {_no_proxy()}-H {shlex.quote(f'@{state.header}')}",
            "app": app,
            "image": image,
        }

    def first(self, lacking: Missing | None) -> str:
        """Return what is printed first: lines for all that works, and what apps lack."""
        if lacking is None:
            return _curl_first() + ALL.format(**self._words)
        text = _described(lacking) + ("" if lacking.after else FOLLOWING)
        return _curl_first() + WITHOUT_APPS.format(lacking=text, **self._words)

    def later(self, lacking: Missing | None) -> str:
        """Return what is printed when that has changed."""
        return APPS.format(**self._words) if lacking is None else f"\n{_described(lacking)}"


def _described(lacking: Missing) -> str:
    what = "The example cannot be tried yet" if lacking.is_example else "Apps cannot be tried yet"
    text = f"{what}: {lacking.why}.{_to_run(lacking.command)}"
    return f"{text}\n{lacking.after}\n" if lacking.after else f"{text}\n"


def _to_run(command: str) -> str:
    if not command:
        return ""
    return f" {'As root, run' if needs_root(command) else 'Run'} this:\n\n  {command}\n"


def _no_proxy() -> str:
    return "--noproxy '*' " if any(map(os.environ.get, PROXIES)) else ""


def _curl_first() -> str:
    if shutil.which("curl"):
        return ""
    return f"\nThe lines below need curl, which is not installed.{_to_run(install('curl'))}"
