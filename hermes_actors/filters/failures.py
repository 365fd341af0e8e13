"""The failures of filters: when one is made, and when it looks at a message."""


class FilterInvalid(ValueError):
    """A filter that cannot be compiled: `field` is the one to mend, the text says why."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field} {reason}")
        self.field = field
        self.reason = reason


class FilterFailed(Exception):
    """A filter that could not decide on a message, which is filtered out then, as in Hermes."""


class NotJson(FilterFailed):
    """The message's body is not JSON, so nothing is found in it."""


class TooLong(Exception):
    """The filters are not decided on the event loop: they go to a worker."""
