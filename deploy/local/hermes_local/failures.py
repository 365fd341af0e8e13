"""The failure that ends a launch: one sentence that says what, why and the way out."""

from hermes_actors.errors import ErrorCode, HermesError


class LaunchFailed(HermesError):
    """A local process could not be started, or did not become ready; `hermes` shows its message."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCode.OTHER)
