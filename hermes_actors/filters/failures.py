"""The errors of filters, when they are compiled and when they are applied."""


class FilterInvalid(ValueError):
    """A filter cannot be compiled: `field` names the wrong field, the text says why."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field} {reason}")
        self.field = field
        self.reason = reason


class FilterFailed(Exception):
    """A filter could not decide on a message; the message is then filtered out, as in Hermes."""


class NotJson(FilterFailed):
    """The message's body is not JSON, so a path finds nothing in it."""


class TooLong(Exception):
    """The filters take too long for the event loop, and must run in a worker."""
