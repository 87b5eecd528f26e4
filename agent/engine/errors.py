"""The errors of a container engine."""


class EngineError(Exception):
    """The engine did not do what it was asked to: EngineRejected or EngineUnavailable."""


class EngineRejected(EngineError):
    """The engine answered that it did not do it; the text holds its own words."""


class EngineUnavailable(EngineError):
    """The engine cannot be reached, or does not answer in time; what it did is not known.

    Attributes:
        remedy: what to do on this host, for its log alone: it names the path of the socket, which
            clients of the API do not get it.

    """

    def __init__(self, text: str, *, remedy: str = "") -> None:
        super().__init__(text)
        self.remedy = remedy


class EngineTimeout(EngineUnavailable):
    """The engine is there, but did not answer in time."""


class EngineTooOld(EngineUnavailable):
    """The engine speaks no version of its interface that this agent was tested with."""


class TooManyStreams(EngineUnavailable):
    """The agent's maximum of logs is under way."""


class AnswerTooLong(EngineRejected):
    """The answer of the engine is longer than the agent reads."""


class ObjectNotFound(EngineRejected):
    """The engine knows no such container or volume."""


class NetworkNotFound(ObjectNotFound):
    """The engine knows no such network, as that of a container which is to start."""


class EndpointLeft(EngineRejected):
    """A container cannot start, since its network has one of its name from an earlier run."""


class ImageUnavailable(EngineRejected):
    """The image is not on this host and cannot be had."""


class ImageNotFound(ImageUnavailable):
    """No server of images knows the image, or it denies access to it."""


class ImageServerUnavailable(ImageUnavailable):
    """The server of images cannot be reached, or fails."""


class ImageServerBusy(ImageServerUnavailable):
    """The server of images answers too many requests of this host already."""

    retry_after_seconds = 60


class PullTimeout(ImageServerUnavailable):
    """The agent gave up a pull that took too long; the engine may just have carried it out."""


class InvalidParameter(EngineRejected):
    """The request is invalid, whatever the present state is."""


class EngineConflict(EngineRejected):
    """The present state of the container forbids it."""


class ImageTooLarge(EngineConflict):
    """The configuration of an image is longer than the agent reads."""


class NameInUse(EngineConflict):
    """Another container has that name."""


class HostPortInUse(EngineRejected):
    """A port on the host is held by somebody else."""


class PortsNotPublished(EngineRejected):
    """The engine fails to publish the ports of a container, though nobody else holds them."""


class NoCommand(InvalidParameter):
    """A container is to be made without a program: its image names none."""


class CommandTimeout(EngineRejected):
    """A command in a container does not end, though the engine is there."""


class DiskFull(EngineRejected):
    """The host's disk has no room for this."""
