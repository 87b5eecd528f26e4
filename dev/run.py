"""`make run`: a registry, an agent and where needed an engine, until Ctrl-C."""

import argparse
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event

import docker
import docker.errors
import requests

from config.load import ConfigError
from dev import daemon, engine, images, state, terminal
from dev.screen import Screen
from dev.waiting import StopRequestedError

CHECK_SECONDS = 0.2
INSTRUCTIONS = """\

Paste these into another terminal:

  curl -H {header} http://{registry}/nodes
  curl -H {header} 'http://{registry}/prometheus/rollcall?format=http_sd'
  curl -H {header} -d '{{"name": "{app}", "image": "{image}"}}' http://{agent}/v1/apps
  curl -H {header} http://{agent}/v1/apps
  curl -H {header} -X DELETE http://{agent}/v1/apps/{app}

They list the nodes and the targets for Prometheus, then create, list and delete an app (its own
page is on the http_port in the answer). Keys, settings and databases are in {folder}.
Ctrl-C ends it all.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until Ctrl-C or SIGTERM; return the exit status."""
    options = _options(arguments)
    stop = terminal.stop_event()
    screen = Screen(stop)
    with terminal.foreground():
        try:
            _run(options, screen, stop)
        except StopRequestedError:
            return 0
        except (daemon.DaemonError, ConfigError, OSError) as error:
            screen.show_logs()
            print(f"rollcall: {error}", file=sys.stderr)
            return 1
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make run", description=__doc__)
    parser.add_argument("--var", type=Path, default=Path("var"), help="where to keep the state")
    new = parser.add_argument_group("for new state (later on, edit the settings in it)")
    new.add_argument("--registry", default="127.0.0.1:7655", metavar="HOST:PORT")
    new.add_argument("--agent", default="127.0.0.1:7656", metavar="HOST:PORT")
    parser.add_argument("--app", default="hello", help="name of the app and image to try")
    return parser.parse_args(arguments)


def _run(options: argparse.Namespace, screen: Screen, stop: Event) -> None:
    url = engine.url(os.environ)
    dev_state = state.prepare(
        options.var.resolve(), registry=options.registry, agent=options.agent, engine=url
    )
    image = f"rollcall-{options.app}"
    with ExitStack() as stack:
        log = dev_state.folder / "dockerd.log"
        _ensure_engine(stack, url, log=log, image=image, screen=screen, stop=stop)
        daemons = []
        for name, listen in (("registry", dev_state.registry), ("agent", dev_state.agent)):
            settings = dev_state.folder / f"{name}.yml"
            started = stack.enter_context(
                daemon.running(name, settings=settings, listen=listen, log=screen.log)
            )
            started.wait_until_healthy(stop)
            daemons.append(started)
        screen.say(_instructions(dev_state, options.app, image))
        screen.show_logs()
        while not stop.wait(CHECK_SECONDS):
            for running in daemons:
                running.check()
        screen.say("\nrollcall: ending what was started here")


def _ensure_engine(
    stack: ExitStack, url: str, *, log: Path, image: str, screen: Screen, stop: Event
) -> None:
    """Start the engine if none runs and build the image; without an engine, print why."""
    try:
        stack.enter_context(engine.running(url, log=log, stop=stop))
        with _client(url) as client:
            images.build_busybox(client, image, page="Hello from the roll call\n")
    except engine.EngineError as error:
        screen.say(f"rollcall: {error}; until an engine answers, apps answer 503")
    except (images.ImageError, docker.errors.DockerException, requests.RequestException) as error:
        screen.say(f"rollcall: the image {image} could not be built: {error}")


@contextmanager
def _client(url: str) -> Iterator[docker.APIClient]:
    client = docker.APIClient(base_url=url, version="auto", timeout=60)
    try:
        yield client
    finally:
        client.close()


def _instructions(dev_state: state.DevState, app: str, image: str) -> str:
    return INSTRUCTIONS.format(
        header=shlex.quote(f"@{dev_state.header}"),
        registry=dev_state.registry,
        agent=dev_state.agent,
        app=app,
        image=image,
        folder=dev_state.folder,
    )


if __name__ == "__main__":
    sys.exit(main())
