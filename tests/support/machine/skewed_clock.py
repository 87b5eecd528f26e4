"""A program with another wall clock: `skewed_clock.py FILE PROGRAM ARGUMENT...`.

FILE holds by how many seconds the clock is set from the true one, such as +3600; it is read anew
each time. It works for a program that is linked statically, too, which libfaketime cannot do: the
kernel is made to ask this process whenever the program asks for the wall clock. Linux on x86-64.
"""

import ctypes
import fcntl
import os
import signal
import socket
import struct
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
PTRACE_TRACEME, PTRACE_DETACH = 0, 17
# The entry by which the kernel shows a program where the time can be read without asking it.
AT_NULL, AT_IGNORE, AT_SYSINFO_EHDR = 0, 1, 33
SYS_CLOCK_GETTIME, SYS_SECCOMP = 228, 317
SECCOMP_SET_MODE_FILTER, WITH_LISTENER = 1, 8
RET_ALLOW, RET_USER_NOTIF = 0x7FFF0000, 0x7FC00000
LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
# struct seccomp_data: the number of the system call, and the low half of its first argument.
NUMBER_OFFSET, FIRST_ARGUMENT_OFFSET = 0, 16
# struct seccomp_notif and struct seccomp_notif_resp, and how they are received and sent.
NOTIFICATION = struct.Struct("=QIIiIQ6Q")
RESPONSE = struct.Struct("=QqiI")
RECEIVE, SEND = 0xC0502100, 0xC0182101
NANOSECONDS = 1_000_000_000
libc = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    """Run the program until it ends; return its exit status."""
    clock, *command = sys.argv[1:]
    ours, theirs = socket.socketpair()
    process = os.fork()
    if process == 0:
        run(command, theirs)
    theirs.close()
    _, (listener,), _, _ = socket.recv_fds(ours, 1, 1)
    os.waitpid(process, 0)  # it stands still, as it begins
    hide_vdso(process)
    call("ptrace", PTRACE_DETACH, process, 0, 0)
    answer(listener, process, Path(clock))
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status)


def run(command: list[str], supervisor: socket.socket) -> None:
    """Become the program, whose questions for the wall clock the supervisor is reported."""
    call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    instructions = [
        (LOAD_WORD, 0, 0, NUMBER_OFFSET),
        (JUMP_IF_EQUAL, 0, 3, SYS_CLOCK_GETTIME),
        (LOAD_WORD, 0, 0, FIRST_ARGUMENT_OFFSET),
        (JUMP_IF_EQUAL, 0, 1, time.CLOCK_REALTIME),
        (RETURN, 0, 0, RET_USER_NOTIF),
        (RETURN, 0, 0, RET_ALLOW),
    ]
    program = b"".join(struct.pack("=HBBI", *one) for one in instructions)
    buffer = ctypes.create_string_buffer(program)
    pointer = struct.pack("@HP", len(instructions), ctypes.addressof(buffer))
    listener = call("syscall", SYS_SECCOMP, SECCOMP_SET_MODE_FILTER, WITH_LISTENER, pointer)
    socket.send_fds(supervisor, [b"x"], [listener])
    os.close(listener)
    call("ptrace", PTRACE_TRACEME, 0, 0, 0)
    words = (ctypes.c_char_p * (len(command) + 1))(*map(os.fsencode, command), None)
    call("execv", words[0], words)


def hide_vdso(process: int) -> None:
    """Let a program that has just begun ask the kernel for the time, as it knows no other way."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    address = int(fields[25])  # startstack: argc, the arguments, 0, the environment, 0, the entries
    with Path(f"/proc/{process}/mem").open("r+b", buffering=0) as memory:

        def word(at: int) -> int:
            memory.seek(at)
            return int.from_bytes(memory.read(8), "little")

        address += 8 * (word(address) + 2)
        while word(address):
            address += 8
        address += 8
        while (kind := word(address)) != AT_NULL:
            if kind == AT_SYSINFO_EHDR:
                memory.seek(address)
                memory.write(AT_IGNORE.to_bytes(8, "little"))
            address += 16


def answer(listener: int, process: int, clock: Path) -> None:
    """Tell a program the time of its clock until it ends."""
    with Path(f"/proc/{process}/mem").open("r+b", buffering=0) as memory:
        while True:
            notification = bytearray(NOTIFICATION.size)
            try:
                fcntl.ioctl(listener, RECEIVE, notification)
                identity, *_, where = NOTIFICATION.unpack(notification)[:8]
                now = time.time_ns() + int(clock.read_text()) * NANOSECONDS
                memory.seek(where)
                memory.write(struct.pack("=qq", *divmod(now, NANOSECONDS)))
                fcntl.ioctl(listener, SEND, bytearray(RESPONSE.pack(identity, 0, 0, 0)))
            except OSError:  # a thread of the program was interrupted as it asked, or it has ended
                if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    return


def call(name: str, *arguments: object) -> int:
    """Call a function of the C library. Raises OSError."""
    result: int = libc[name](*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


if __name__ == "__main__":
    sys.exit(main())
