"""What keeps a source from giving all that was asked of it."""

from hermes_actors.errors import ErrorCode, HermesError


class SourceFailed(HermesError):
    """A log does not hold what a snapshot names, or cannot be read; the message says what helps."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCode.OTHER)

    def __reduce__(self) -> tuple[type["SourceFailed"], tuple[str]]:
        return SourceFailed, (self.message,)

    def __str__(self) -> str:
        return self.message
