"""Decides which request goes to which server next, and when to give up. Pure.

A call is a generator: it yields a `Send`, or the seconds of a pause, and gets the time and
the reply. `transport.py` carries the steps out, async or sync.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import urlsplit

from hermes_client.errors import CallFailed, MessageInvalid, NotAccepted, NotAllowed, TopicUnknown

T = TypeVar("T")
Urls = str | Sequence[str]

_AVOIDED_MAX_S = 30.0
# Another server would answer alike, or would store the message twice.
_STAYS = (409, 429)
_KINDS = {"TOPIC_NOT_EXISTS": TopicUnknown, "VALIDATION_ERROR": MessageInvalid}
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


RETRIES = Retries()

Request = tuple[str, bytes, Mapping[str, str]]
"""Path, body and headers of a POST to one of the servers."""


Send = tuple[str, Request, float]
"""Send a request to this base URL, with this time limit in seconds."""


@dataclass(slots=True)
class Reply:
    """An answer, whose body may be cut short. Without one, `status` is 0, and `may_have_arrived`
    says whether the request may have been processed. Names of headers are in lower case.
    `attempts` is how often the call was sent.
    """

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    reason: str = ""
    may_have_arrived: bool = True
    attempts: int = 1


Steps = Generator[Send | float, tuple[float, Reply], T]
Ask = Callable[[Sequence[int]], Request]
Read = Callable[[Reply, Sequence[int]], Sequence[T | CallFailed]]


def failure_of(status: int, code: str, text: str, retry_after_s: float = 0.0) -> CallFailed:
    """The failure that an error answer reports, alone or in a line of a batch's answer. `status` is
    0 without an answer. NotAccepted if it may be retried.
    """
    kind = NotAllowed if status in (401, 403) else _KINDS.get(code, CallFailed)
    if not status or status >= 500 or status in (408, 409, 429):
        kind = NotAccepted
    failure = kind(text or f"the broker answered {status}")
    failure.status, failure.code, failure.retry_after_s = status, code, retry_after_s
    is_unknown = status >= 500 and (status, code) not in _NOT_STORED
    failure.may_be_stored = is_unknown or status in (0, 409)
    return failure


def _failure(reply: Reply) -> CallFailed:
    """The failure of a whole request."""
    if not reply.status:
        failure = failure_of(0, "", f"no answer: {reply.reason}")
        failure.may_be_stored = reply.may_have_arrived
        return failure
    code = text = ""
    # Not all errors have a body, and a proxy's has another form.
    with suppress(ValueError, LookupError, TypeError, RecursionError):
        body = json.loads(reply.body)
        code, text = str(body["code"]), str(body["message"])
    seconds = reply.headers.get("retry-after", "")
    return failure_of(reply.status, code, text, float(seconds) if seconds.isdecimal() else 0.0)


class Servers:
    """One server, or several in order of preference. A dead one is avoided for a while; then one
    call tries it again. Raises ValueError for what is no base URL.
    """

    def __init__(self, urls: Urls) -> None:
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
        """The first fresh server; else the server that is avoided for the shortest time."""
        for url in self.fresh(now_s, tried):
            if self._failures[url]:
                # Others avoid it until this call knows more.
                self._avoided_until_s[url] = now_s + _AVOIDED_MAX_S
            return url
        return min(self._avoided_until_s, key=self._avoided_until_s.__getitem__)

    def learn(self, url: str, reply: Reply, now_s: float) -> None:
        """Remember whether the server is dead: no answer, or 503 without a body, as at a stop."""
        is_up = reply.status and (reply.status != 503 or reply.body)
        failures = self._failures[url] = 0 if is_up else self._failures[url] + 1
        avoided_s = min(_AVOIDED_MAX_S, 2.0 ** min(failures - 1, 10))
        self._avoided_until_s[url] = now_s + avoided_s if failures else float("-inf")


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"{url!r} is no base URL; write it like http://127.0.0.1:8080")
    if "@" in parts.netloc:
        # URLs occur in error messages.
        raise ValueError("a URL may not contain credentials; give them as auth=(user, password)")
    return url.rstrip("/")


@dataclass(frozen=True, slots=True)
class Calls:
    """Makes the steps of calls to these servers."""

    servers: Servers
    retries: Retries
    rng: random.Random

    def one(self, request: Request) -> Steps[Reply]:
        """Send a request until it is answered by 2xx. Raises CallFailed."""
        (reply,) = yield from self.many(1, lambda _: request, lambda reply, _: [reply])
        if isinstance(reply, CallFailed):
            raise reply
        return reply

    def many(self, count: int, ask: Ask, read: Read[T]) -> Steps[list[T | CallFailed]]:
        """Send `count` messages until each has a result that is final, or the retries are used up.

        `ask` makes the request for the messages at these places; `read` gives a result for each of
        them from an answer of 2xx.
        """
        retries = self.retries
        now_s, _ = yield 0.0
        deadline_s = now_s + retries.total_s
        results: list[T | CallFailed] = [CallFailed()] * count
        left: Sequence[int] = range(count)
        tried: set[str] = set()
        attempts = pauses = 0
        while True:
            attempts += 1
            base_url = self.servers.choose(now_s, tried)
            timeout_s = max(0.1, min(retries.attempt_s, deadline_s - now_s))
            now_s, reply = yield base_url, ask(left), timeout_s
            self.servers.learn(base_url, reply, now_s)
            reply.attempts = attempts
            is_answered = 200 <= reply.status < 300
            found = read(reply, left) if is_answered else [_failure(reply) for _ in left]
            for at, result in zip(left, found, strict=True):
                before, results[at] = results[at], result
                if isinstance(result, CallFailed):
                    result.attempts = attempts
                    result.may_be_stored |= isinstance(before, CallFailed) and before.may_be_stored
            left = [at for at in left if isinstance(results[at], NotAccepted)]
            failures = [each for each in found if isinstance(each, NotAccepted)]
            if not left or attempts >= retries.attempts_max:
                return results
            tried.add(base_url)
            pause_s = 0.0
            stays = any(each.status in _STAYS for each in failures)
            if stays or not self.servers.fresh(now_s, tried):
                backoff_s = min(retries.backoff_max_s, retries.backoff_s * 2 ** min(pauses, 30))
                asked_s = max(each.retry_after_s for each in failures)
                pause_s = max(backoff_s * self.rng.uniform(0.5, 1.0), asked_s)
                pauses += 1
                tried.clear()
            if now_s + pause_s >= deadline_s:
                return results
            if pause_s:
                now_s, _ = yield pause_s
