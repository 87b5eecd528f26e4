"""What registries are permitted on NATS servers, as docs/high-availability.md says."""

import re

from tests.support.registry.nats.accounts import Permissions

# As in docs/high-availability.md.
PERMISSIONS = """
{
  publish: [
    "$KV.rollcall.>"
    "$JS.API.STREAM.INFO.KV_rollcall"
    "$JS.API.STREAM.CREATE.KV_rollcall"
    "$JS.API.CONSUMER.CREATE.KV_rollcall.>"
    "$JS.API.CONSUMER.DELETE.KV_rollcall.>"
    "$JS.FC.KV_rollcall.>"
  ]
  subscribe: ["_INBOX.>"]
}
"""
LEAST = Permissions(
    *(re.findall('"(.*?)"', part) for part in re.findall(r"\[(.*?)\]", PERMISSIONS, re.DOTALL))
)
# As in docs/high-availability.md.
SYSTEM = Permissions(publish=["$SYS.REQ.SERVER.PING.VARZ"], subscribe=["_INBOX.>"])
