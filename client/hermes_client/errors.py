"""Errors, by what the caller does next: correct the call, or make it again later."""

import re
from collections.abc import Sequence


class HermesError(Exception):
    """The base of all errors of this package."""


class CallFailed(HermesError):
    """The broker refused a call.

    `status` is that of the last answer, 0 if there was none. `code` is the broker's error code, an
    empty string if it sent none. `may_be_stored`: the message may be stored in spite of the error.
    `attempts` is how often the call was sent. `retry_after_s` is what the broker asks for.
    """

    status = 0
    code = ""
    may_be_stored = False
    attempts = 1
    retry_after_s = 0.0


class TopicUnknown(CallFailed):
    """The topic does not exist."""


class NotAllowed(CallFailed):
    """The credentials are missing or wrong, or the account may not do this."""


class MessageInvalid(CallFailed):
    """The message breaks a rule, for example its topic's schema."""

    @property
    def problems(self) -> list[str]:
        """What is wrong, for people: one text for each field that breaks the schema."""
        # The broker adds the kind of the value that it found.
        return re.split(r"; (?!it is )", str(self).removeprefix("Invalid message: "))


class NotAccepted(CallFailed):
    """The broker did not accept the call, or did not answer, until the retries were used up. The
    same call may succeed later.
    """


class SignatureInvalid(HermesError):
    """A request does not come from the broker, or is too old."""


class DeliveryMalformed(HermesError):
    """A request is no delivery of messages."""


class Refuse(HermesError):
    """Raise it in a handler: this message can never be processed. It becomes a dead letter."""


class NotNow(HermesError):
    """Raise it in a handler: the message shall come again, after about `retry_after_s`."""

    def __init__(self, reason: str = "not now", *, retry_after_s: float = 1.0) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class AckRefused(HermesError):
    """Acknowledgements had no effect. `codes` has the reason for each ack id: `NOT_OUT` (done
    before, or its deadline has passed), `STALE` (the partition has another owner) or `UNKNOWN`.
    """

    def __init__(self, refused: Sequence[dict[str, str]]) -> None:
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        super().__init__(f"{refused[0]['code']}: {refused[0]['message']}{more}")
        self.codes = {each["ackId"]: each["code"] for each in refused}
