"""The result of test-pushing one message: the requests and their answers, with secrets masked."""

from msgspec import Struct

Shown = tuple[tuple[str, str], ...]
"""Header lines, as (name, value)."""


class TrialRequest(Struct, frozen=True, rename="camel"):
    """The request as it was sent; `body` is the beginning of its body as text."""

    method: str
    url: str
    headers: Shown
    body: str
    body_bytes: int


class TrialAnswer(Struct, frozen=True, rename="camel"):
    """The answer; `body` is the beginning of its body as text, `body_bytes` the size read."""

    status: int
    headers: Shown
    body: str
    body_bytes: int


class TrialPush(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One push to one recipient. `answer` is None if there was none in time, and `outcome` says
    why; `took_ms` is the time until then.
    """

    request: TrialRequest
    outcome: str
    took_ms: int
    answer: TrialAnswer | None = None


class PushTrial(Struct, frozen=True, rename="camel"):
    """The result of a trial: `outcome` as text, and the pushes, one for each recipient."""

    is_delivered: bool
    outcome: str
    took_ms: int
    pushes: tuple[TrialPush, ...]
