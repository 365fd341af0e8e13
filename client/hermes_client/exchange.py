"""Decides which request goes to which server next, and when to give up. Pure.

A call is a generator: it yields a `Send` or a `Pause`, and gets an `Event` with the time and the
reply. `transport.py` carries the steps out, async or sync.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from hermes_client.errors import CallFailed, MessageInvalid, NotAccepted, NotAllowed, TopicUnknown

T = TypeVar("T")

_AVOIDED_S, _AVOIDED_MAX_S = 1.0, 30.0
_TIMEOUT_MIN_S = 0.1
# Another server would answer alike, or would store the message twice.
_STAYS = (409, 429)
_NOT_STORED = ((503, ""), (503, "OTHER"), (500, "SCHEMA_COULD_NOT_BE_LOADED"))


@dataclass(frozen=True, slots=True)
class Retries:
    """How long a call is retried.

    At most `attempts_max` attempts within `total_s`, each of at most `attempt_s`. A pause is
    `backoff_s`, doubled each time up to `backoff_max_s`, shortened at random by up to a half; or as
    long as the broker's `Retry-After`.
    """

    attempts_max: int = 10
    total_s: float = 30.0
    attempt_s: float = 5.0
    backoff_s: float = 0.1
    backoff_max_s: float = 5.0


Request = tuple[str, bytes, Mapping[str, str]]
"""Path, body and headers of a POST to one of the servers."""


class Send(NamedTuple):
    """Send this request to the server at `base_url`."""

    base_url: str
    request: Request
    timeout_s: float


class Pause(NamedTuple):
    """Wait."""

    seconds: float


@dataclass(slots=True)
class Reply:
    """An answer, whose body may be cut short. Without one, `status` is 0, and `may_have_arrived`
    says whether the request may have been processed. Names of headers are in lower case.
    """

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    reason: str = ""
    may_have_arrived: bool = True


Event = tuple[float, Reply]
"""A step is done: the time, and the reply to a `Send`."""
Steps = Generator[Send | Pause, Event, T]
Ask = Callable[[Sequence[int]], Request]
Read = Callable[[Reply, Sequence[int]], Sequence[T | CallFailed]]


def failure_of(status: int, code: str, text: str, retry_after_s: float = 0.0) -> CallFailed:
    """The failure that an error answer reports, alone or in a line of a batch's answer. NotAccepted
    if it may be retried.
    """
    kind = CallFailed
    if status >= 500 or status in (408, 409, 429):
        kind = NotAccepted
    elif code == "TOPIC_NOT_EXISTS":
        kind = TopicUnknown
    elif status in (401, 403):
        kind = NotAllowed
    elif code in ("VALIDATION_ERROR", "SCHEMA_VERSION_DOES_NOT_EXIST"):
        kind = MessageInvalid
    may_be_stored = status == 409 or (status >= 500 and (status, code) not in _NOT_STORED)
    text = text or f"the broker answered {status}"
    return kind(text, status, code, may_be_stored=may_be_stored, retry_after_s=retry_after_s)


def _failure(reply: Reply) -> CallFailed:
    """The failure of a whole request."""
    if not reply.status:
        return NotAccepted(f"no answer: {reply.reason}", may_be_stored=reply.may_have_arrived)
    code = text = ""
    try:
        body = json.loads(reply.body)
        code, text = str(body["code"]), str(body["message"])
    except (ValueError, LookupError, TypeError, RecursionError):
        # Not all errors have a body, and a proxy's has another form.
        pass
    seconds = reply.headers.get("retry-after", "")
    return failure_of(reply.status, code, text, float(seconds) if seconds.isdecimal() else 0.0)


class Servers:
    """One server, or several in order of preference. A dead one is avoided for a while; then one
    call tries it again. Raises ValueError for what is no base URL.
    """

    def __init__(self, urls: str | Sequence[str]) -> None:
        listed = [urls] if isinstance(urls, str) else urls
        self._avoided_until_s = {_checked(url): float("-inf") for url in listed}
        self._failures = Counter[str]()
        if not listed:
            raise ValueError("no URL; give one, for example http://127.0.0.1:8080")

    def fresh(self, now_s: float, tried: Collection[str]) -> list[str]:
        """The servers that are neither tried nor avoided."""
        until_s = self._avoided_until_s
        return [url for url in until_s if url not in tried and until_s[url] <= now_s]

    def choose(self, now_s: float, tried: Collection[str]) -> str:
        """The first fresh server, or else the one that is avoided for the shortest time."""
        for url in self.fresh(now_s, tried):
            if self._failures[url]:
                # Others avoid it until this call knows more.
                self._avoided_until_s[url] = now_s + _AVOIDED_MAX_S
            return url
        return min(self._avoided_until_s, key=self._avoided_until_s.__getitem__)

    def learn(self, url: str, reply: Reply, now_s: float) -> None:
        """Remember whether the server is dead: no answer, or 503 without a body, as at a stop."""
        if reply.status and (reply.status != 503 or reply.body):
            self._failures[url] = 0
            self._avoided_until_s[url] = float("-inf")
        else:
            avoided_s = _AVOIDED_S * 2 ** min(self._failures[url], 10)
            self._failures[url] += 1
            self._avoided_until_s[url] = now_s + min(avoided_s, _AVOIDED_MAX_S)


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"{url!r} is no base URL; write it like http://127.0.0.1:8080")
    if "@" in parts.netloc:
        # URLs occur in error messages.
        raise ValueError("a URL may not contain credentials; give them as auth=(user, password)")
    return url.rstrip("/")


def carry_out(
    count: int,
    ask: Ask,
    read: Read[T],
    servers: Servers,
    retries: Retries,
    rng: random.Random,
) -> Steps[list[T | CallFailed]]:
    """Send `count` messages until each has a result that is final, or the retries are used up.

    `ask` makes the request for the messages at these places; `read` gives a result for each of
    them from an answer of 2xx.
    """
    now_s, _ = yield Pause(0.0)
    deadline_s = now_s + retries.total_s
    results: list[T | CallFailed] = []
    failures: dict[int, CallFailed] = {}
    left: Sequence[int] = range(count)
    tried: set[str] = set()
    attempts = pauses = 0
    while True:
        attempts += 1
        base_url = servers.choose(now_s, tried)
        timeout_s = max(_TIMEOUT_MIN_S, min(retries.attempt_s, deadline_s - now_s))
        now_s, reply = yield Send(base_url, ask(left), timeout_s)
        servers.learn(base_url, reply, now_s)
        is_answered = 200 <= reply.status < 300
        found = read(reply, left) if is_answered else [_failure(reply) for _ in left]
        results = results or list(found)
        for at, result in zip(left, found, strict=True):
            results[at] = result
            before = failures.pop(at, None)
            if isinstance(result, CallFailed):
                result.attempts = attempts
                result.may_be_stored |= before is not None and before.may_be_stored
                if isinstance(result, NotAccepted):
                    failures[at] = result
        left = sorted(failures)
        if not left or attempts >= retries.attempts_max:
            return results
        tried.add(base_url)
        pause_s = 0.0
        stays = any(each.status in _STAYS for each in failures.values())
        if stays or not servers.fresh(now_s, tried):
            backoff_s = min(retries.backoff_max_s, retries.backoff_s * 2 ** min(pauses, 30))
            asked_s = max(each.retry_after_s for each in failures.values())
            pause_s = max(backoff_s * rng.uniform(0.5, 1.0), asked_s)
            pauses += 1
            tried.clear()
        if now_s + pause_s >= deadline_s:
            return results
        if pause_s:
            now_s, _ = yield Pause(pause_s)
