"""Requests to the API of JetStream."""

from typing import Any

import msgspec
from nats import errors

from registry.store.nats.connection.link import Link, NoConnection

REQUEST_SECONDS = 5.0
# Error codes: there is no leader now, the server that was asked is not the leader, or JetStream is
# not enabled there, or not yet.
TEMPORARILY_UNAVAILABLE = {10008, 10009, 10076}


class Refused(Exception):
    """JetStream refuses a request; `code` is its number of the error."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(description)
        self.code = code


class JetStreamApi:
    """The API, over one connection."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def ask(self, subject: str, request: object = None) -> dict[str, Any]:
        """Return the answer to a request, which is sent as JSON. Raises Refused, NoConnection."""
        payload = b"" if request is None else msgspec.json.encode(request)
        try:
            reply = await self._link.client.request(
                f"$JS.API.{subject}", payload, timeout=REQUEST_SECONDS
            )
        except errors.NoRespondersError as error:
            raise NoConnection("JetStream is not enabled there, or has no leader now") from error
        except (TimeoutError, errors.TimeoutError) as error:
            raise NoConnection(f"JetStream did not answer {subject}") from error
        except (OSError, errors.Error) as error:
            raise NoConnection(str(error) or type(error).__name__) from error
        answer: dict[str, Any] = msgspec.json.decode(reply.data)
        if "error" in answer:
            error_ = answer["error"]
            code, text = error_.get("err_code", 0), error_.get("description", "no reason given")
            raise NoConnection(text) if code in TEMPORARILY_UNAVAILABLE else Refused(code, text)
        return answer
