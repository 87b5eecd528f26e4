"""`make run`: a registry, an agent and where needed an engine, until Ctrl-C."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Event

from config.load import ConfigError
from dev import engine
from dev.run import daemon, state
from dev.run.instructions import Instructions
from dev.run.missing import Missing
from dev.run.terminal import Screen, foreground, stop_event
from dev.run.trial import Trial
from dev.waiting import StopRequestedError

CHECK_SECONDS = 0.5
STEADY_SECONDS = 8.0
UNNOTICED = Missing("the agent has not found the Docker Engine yet")


class Steady:
    """Says whether the values that it is shown have stayed the same for some seconds."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._value: object = None
        self._since = clock()

    def is_steady(self, value: object) -> bool:
        """Take the present value; return whether it has been the same for so long."""
        if value != self._value:
            self._value, self._since = value, self._clock()
        return self._clock() - self._since >= self._seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until Ctrl-C or SIGTERM; return the exit status."""
    options = _options(arguments)
    stop = stop_event()
    screen = Screen(stop)
    with foreground():
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
    dev_state = state.prepare(
        options.var.resolve(),
        registry=options.registry,
        agent=options.agent,
        engine=engine.url(os.environ),
    )
    image = f"rollcall-{options.app}"
    with ExitStack() as engines, ExitStack() as daemons:
        log = dev_state.folder / "dockerd.log"
        trial = Trial(dev_state.engine, image, log, stop, engines)
        trial.missing()  # an agent finds at once an engine that runs before it
        registry = _start(daemons, "registry", dev_state.registry, dev_state.folder, screen)
        registry.wait_until_healthy(stop)
        agent = _start(daemons, "agent", dev_state.agent, dev_state.folder, screen)
        agent.wait_until_it_answers(stop)

        def lacking() -> Missing | None:
            return trial.missing() or (None if agent.is_healthy() else UNNOTICED)

        texts = Instructions(dev_state, options.app, image)
        said = {first := lacking()}
        steady = Steady(STEADY_SECONDS)
        screen.say(texts.first(first))
        screen.show_logs()
        while not stop.wait(CHECK_SECONDS):
            registry.check()
            agent.check()
            if None in said:
                continue
            now = lacking()
            # While a package manager installs an engine, what is missing changes all the time.
            if (steady.is_steady(now) or now is None) and now not in said:
                said.add(now)
                screen.say(texts.later(now))
        screen.say("\nrollcall: ending what was started here")


def _start(
    stack: ExitStack, name: str, listen: str, folder: Path, screen: Screen
) -> daemon.DaemonProcess:
    settings = folder / f"{name}.yml"
    return stack.enter_context(
        daemon.running(name, settings=settings, listen=listen, log=screen.log)
    )


if __name__ == "__main__":
    sys.exit(main())
