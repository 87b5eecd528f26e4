"""The console scripts for the PATH of a shell, forked as `tests.support.forks` says.

Each script hands what it was started with to a server, which forks the program.
"""

import ast
import atexit
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from tests.support import forks
from tests.support.run.answers import FILE

MOST_BYTES = 128 * 1024
# It forwards the signals that end or reload a daemon, and ends as the program does.
SCRIPT = """\
#!{python} -IS
import os, signal, socket, sys

umask = os.umask(0o077)
os.umask(umask)
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect({address!r})
started = repr((sys.argv, dict(os.environ), os.getcwd(), umask))
socket.send_fds(server, [started.encode()], [0, 1, 2])
for each in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    # A daemon heeds SIGHUP under nohup, too; a job in the background of a shell ignores SIGINT.
    if each != signal.SIGINT or signal.getsignal(each) is not signal.SIG_IGN:
        signal.signal(each, lambda number, _: server.send(b"%d" % number))
status = int(server.recv(16))
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


@cache
def forked_path() -> Path:
    """Return a folder with the console scripts, which work for as long as this process lasts."""
    if forks.NO_FORKS in os.environ:
        return Path(sys.executable).parent
    folder = Path(tempfile.mkdtemp(prefix="rollcall-path-"))  # the path of a socket is short
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    address = str(folder / "server")
    for program in forks.MODULES:
        (folder / program).write_text(SCRIPT.format(python=sys.executable, address=address))
        (folder / program).chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen()
        arguments = (listener, os.environ.get(FILE))
        forks.context().Process(target=_serve, args=arguments, daemon=True).start()
    return folder


def _serve(listener: socket.socket, answers: str | None) -> None:
    """Fork for each connection."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that look after one
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _look_after(connection, answers)
            return
        connection.close()


def _look_after(connection: socket.socket, answers: str | None) -> None:
    """Fork the program; forward signals to it, kill it with its script, and tell its status."""
    started, streams, _, _ = socket.recv_fds(connection, MOST_BYTES, 3)
    program = os.fork()
    if program == 0:
        connection.close()
        command, environment, folder, umask = ast.literal_eval(started.decode())
        os.umask(umask)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        forks.become(command, environment, Path(folder), answers)
    for stream in streams:
        os.close(stream)
    ended = os.pidfd_open(program)
    while ended not in select.select([connection.fileno(), ended], [], [])[0]:
        sent = connection.recv(16)
        os.kill(program, int(sent) if sent else signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    with suppress(BrokenPipeError):  # the script was killed
        connection.send(b"%d" % status)
