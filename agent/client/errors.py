"""Why a request to an agent failed."""

from http import HTTPStatus


class AgentError(Exception):
    """A request to an agent failed; the text says why."""


class AgentUnreachable(AgentError):
    """No connection, none that is to be trusted, or no answer in time."""


class AgentNotConnected(AgentUnreachable):
    """There is no connection to the agent, so that it has got nothing of the request."""


class AgentRefused(AgentError):
    """The agent answered with an error; the text is its message, ``status`` that of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_of_setting(self) -> bool:
        """Whether a setting of the agent forbids this, whatever the key is: it is named."""
        return self.status == HTTPStatus.FORBIDDEN and "`apps." in str(self)
