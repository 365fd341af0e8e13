"""The error that ends a launch: one sentence with the fault, the reason and the remedy."""

from hermes_actors.errors import ErrorCode, HermesError


class LaunchFailed(HermesError):
    """A local process could not be started, or did not become ready. `hermes` prints
    the message.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCode.OTHER)
