"""The password of an app's user, which is kept as a crypt hash and set in each new container."""

import asyncio
import re

import msgspec
from passlib.hash import sha512_crypt

from agent.apps.containers.spec import password_user
from agent.apps.context import AgentContext
from agent.apps.errors import InvalidPassword, NoSuchUser, PasswordProgramFailed
from agent.engine.errors import (
    CommandTimeout,
    EngineConflict,
    EngineRejected,
    ObjectNotFound,
)
from agent.engine.models import Container
from agent.model import App

# In UTF-8. The crypt of an app's image (libxcrypt) hashes no more, so nobody could log in.
MAX_PASSWORD_BYTES = 511
# This takes some 70 ms here, and as long in the app at each login.
ROUNDS = 100_000
PUBLIC_KEY = re.compile(r"\s*(ssh-|ecdsa-|sk-|-----BEGIN |---- BEGIN SSH2)")
CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")
NOT_FOUND_EXIT_CODES = (126, 127)
PROGRAM_DIRECTORIES = (
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/usr/local/sbin",
    "/usr/local/bin",
)
OTHER_IMAGE = "change to an image that has it"
CHPASSWD_HANGS = (
    "the `chpasswd` of the app's image does not end, so no password can be set; change to an image"
    " whose `chpasswd` works"
)
NO_CHPASSWD = f"the app's image has no `chpasswd`, so no password can be set; {OTHER_IMAGE}"
NO_USER = f"{OTHER_IMAGE}, or that names its own in the label `rollcall.user`"


def check_password(password: str, *, min_length: int) -> None:
    """Reject an unfit password; InvalidPassword, whose text does not hold it."""
    if PUBLIC_KEY.match(password):
        raise InvalidPassword(
            "this looks like an SSH public key; this call sets a password, and wants that"
        )
    if len(password) < min_length:
        raise InvalidPassword(f"a password has at least {min_length} characters")
    if len(password.encode()) > MAX_PASSWORD_BYTES:
        raise InvalidPassword(
            f"a password has at most {MAX_PASSWORD_BYTES} bytes of UTF-8, as nobody could log in"
            " with a longer one"
        )
    if CONTROL_CHARACTER.search(password):
        raise InvalidPassword("a password holds no control characters")


class Passwords:
    """Sets and reads the password hash of the user in a container."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._hashing = asyncio.Lock()

    async def hash(self, password: str) -> str:
        """Hash a password with SHA-512 crypt, in a thread: that takes some 70 ms.

        One at a time: each thread would take the interpreter from the event loop for as long.
        """
        hasher = sha512_crypt.using(rounds=ROUNDS)
        async with self._hashing:
            return str(await asyncio.to_thread(hasher.hash, password))

    def user(self, container: Container) -> str:
        """Return the user whose password it is."""
        return password_user(container.labels, self._context.defaults.ssh_user)

    async def apply(self, container: Container, password: str) -> None:
        """Set a password hash in a running container.

        It is passed in the standard input: the engine publishes commands in its events.

        Raises:
            NoSuchUser: the image has no such user, or no chpasswd that works.
            PasswordProgramFailed: it failed, although the user is there.
            EngineConflict: the container does not run.

        """
        user = self.user(container)
        line = f"{user}:{password}\n".encode()
        try:
            done = await self._context.engine.execute(container.id, ["chpasswd", "-e"], stdin=line)
        except CommandTimeout as error:
            raise NoSuchUser(CHPASSWD_HANGS) from error
        if done.exit_code in NOT_FOUND_EXIT_CODES:
            raise NoSuchUser(NO_CHPASSWD)
        if done.exit_code != 0:
            # Its output may hold the hash.
            ended = f"its `chpasswd` ended with exit code {done.exit_code}"
            if await self._has_user(container, user):
                raise PasswordProgramFailed(
                    f"the password of `{user}` is not set: {ended}, as on a full disk; make room if"
                    " that is the reason, or change to an image whose `chpasswd` works"
                )
            raise NoSuchUser(
                f"the app's image has no user `{user}` whose password could be set: {ended};"
                f" {NO_USER}"
            )

    async def check_settable(self, container: Container) -> None:
        """Reject a password for a stopped container that could not be set in it; NoSuchUser."""
        user = self.user(container)
        if not await self._has_user(container, user):
            raise NoSuchUser(
                f"the app's image has no user `{user}` whose password could be set; {NO_USER}"
            )
        if not await self._has_chpasswd(container):
            raise NoSuchUser(NO_CHPASSWD)

    async def _has_user(self, container: Container, user: str) -> bool:
        try:
            known = await self._context.engine.read_file(container.id, "/etc/passwd")
        except (ObjectNotFound, EngineConflict):
            return False
        return any(line.startswith(f"{user}:".encode()) for line in known.split(b"\n"))

    async def _has_chpasswd(self, container: Container) -> bool:
        for place in PROGRAM_DIRECTORIES:
            try:
                await self._context.engine.read_file(container.id, f"{place}/chpasswd")
            except ObjectNotFound:
                continue
            except EngineRejected:
                return True  # a link, or large
            return True
        return False

    async def set_pending(self, app: App, container: Container) -> App:
        """Set the app's pending password in its running container; return the app as it is then.

        It stays pending if the container has ended meanwhile, and with the reason in ``message`` if
        the engine rejects.

        Raises:
            NoSuchUser: it cannot be set in this container.

        """
        if app.password is None:
            return app
        try:
            await self.apply(container, app.password)
        except (EngineConflict, ObjectNotFound):
            return msgspec.structs.replace(app, password_pending=True)
        except EngineRejected as error:
            self._context.log.warning(
                "password not set: the engine rejects", app=app.name, reason=str(error)
            )
            return msgspec.structs.replace(app, password_pending=True, message=str(error))
        message = None if app.password_pending else app.message
        return msgspec.structs.replace(app, password_pending=False, message=message)

    async def drop(self, app: App, container: Container, reason: NoSuchUser) -> App:
        """Return the app with the password of its container in place of one that cannot be set.

        The pending one stays if it may be set later, and if the engine cannot tell.
        """
        if isinstance(reason, PasswordProgramFailed):
            return msgspec.structs.replace(app, message=f"{reason}; it is tried again")
        try:
            held = await self.read_hash(container)
        except EngineRejected as error:
            return msgspec.structs.replace(app, message=f"{reason}; {error}")
        message = f"the password was dropped: {reason}"
        return msgspec.structs.replace(app, password=held, password_pending=False, message=message)

    async def read_hash(self, container: Container) -> str | None:
        """Return the hash that the container holds, such as that of an earlier password.

        None if there is none.

        Raises:
            EngineRejected: the engine does not read it.

        """
        try:
            shadow = await self._context.engine.read_file(container.id, "/etc/shadow")
        except (ObjectNotFound, EngineConflict):  # it is missing, or no regular file
            return None
        for line in shadow.decode("utf-8", "replace").split("\n"):
            user, _, rest = line.partition(":")
            held = rest.partition(":")[0]
            if user == self.user(container) and held.startswith("$"):
                return held
        return None
