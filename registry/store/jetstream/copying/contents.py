"""What a bucket holds, as its messages tell, for a copy."""

import msgspec

from registry.store.jetstream.connection.delivery import Message
from registry.store.jetstream.format.loading import LoadedNodes
from registry.store.jetstream.format.messages import (
    CURRENT,
    FORMAT,
    NODE,
    Format,
    decode_current,
    decode_format,
    decode_node,
    decode_written,
    hostname_of,
    is_deletion,
    node_key,
    row_of,
)
from registry.store.protocol import Row


class BucketContents:
    """The nodes, the last sequence of each key, and what is said of the bucket.

    `current` is when the bucket that was confirmed to be current was made.
    """

    def __init__(self) -> None:
        self.format = Format()
        self.current = ""
        self.sequences: dict[str, int] = {}
        self._nodes = LoadedNodes(lambda hostname: self.sequences.get(node_key(hostname), 0))

    @property
    def uptime(self) -> float:
        """For how many seconds registries have run on the bucket."""
        return self._nodes.uptime

    def rows(self) -> list[Row]:
        """Return all nodes, sorted, with their ages."""
        return self._nodes.rows()

    def take(self, message: Message) -> None:
        """Take the next message. What no registry wrote is ignored, as registries do."""
        self.sequences[message.key] = message.sequence
        if message.key == FORMAT:
            self.format = decode_format(message.data, message.headers)
            return
        try:
            self._take(message)
        except msgspec.MsgspecError:
            if message.key.startswith(f"{NODE}."):
                self._nodes.deleted(hostname_of(message.key))

    def _take(self, message: Message) -> None:
        gone = is_deletion(message.headers)
        written = decode_written(message.data)
        self._nodes.uptime = max(self._nodes.uptime, written.uptime)
        if message.key == CURRENT:
            self.current = "" if gone else decode_current(message.data).created
        elif not message.key.startswith(f"{NODE}."):
            self._nodes.heard(message)
        elif gone:
            self._nodes.deleted(hostname_of(message.key))
        else:
            node = decode_node(message.data)
            self._nodes.stored(row_of(hostname_of(message.key), node), node.uptime)
