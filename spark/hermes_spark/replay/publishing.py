"""Publishes messages to be put back: in order, one at a time, within a rate."""

from collections.abc import Callable, Iterable
from urllib.parse import quote

import httpx
from msgspec import Struct

from hermes_actors.cli.command_line.failures import CommandFailed
from hermes_actors.runtime.clock import SystemClock
from hermes_spark.replay.journal import Journal, Replayed
from hermes_spark.replay.request import CannotReplay, ReplayRequest

ATTEMPTS_MAX = 6
TIMEOUT_S = 10.0
_PAUSE_FIRST_S = 0.5
_PAUSE_MAX_S = 30.0
_FOR_LATER = (408, 409, 429, 500, 502, 503, 504)
"""Answers that may change soon. 409 means that an earlier attempt is still under way."""
_FOR_ALL = (401, 415)
"""Answers that every message would get."""
_FOR_ITS_TOPIC = (403, 404)
"""Answers that every message of the topic would get: it is forbidden, or does not exist."""


class Candidate(Struct, frozen=True):
    """A message that may have to be put back. `make` builds its request, or raises CannotReplay."""

    topic: str
    message_id: str
    make: Callable[[], ReplayRequest]


class Tally(Struct):
    """How many messages were put back now, were put back before, and failed; and the topics that
    accept none, with status and reason.
    """

    replayed: int = 0
    before: int = 0
    failed: int = 0
    refused: dict[str, str] = {}


class Replayer:
    """Publishes each candidate once at `url`, at most `rate_per_s`, and keeps the journal.

    Only one request is under way at a time, so the order is kept. 429, 409 (an earlier attempt is
    under way), 5xx or no answer are retried, up to six attempts.
    """

    def __init__(
        self,
        client: httpx.Client,
        url: str,
        journal: Journal,
        rate_per_s: float,
        only_for: str,
        clock: SystemClock,
        sleep: Callable[[float], object],
    ) -> None:
        self._client = client
        self._url = url.rstrip("/")
        self._journal = journal
        self._interval_s = 1 / rate_per_s
        self._only_for = only_for
        self._clock = clock
        self._sleep = sleep
        self._next_s = clock.monotonic_s()

    def run(self, candidates: Iterable[Candidate], tally: Tally) -> None:
        """Publish all candidates and count them in the tally. Raises CommandFailed if continuing is
        useless: nobody answers, or every message would get the same answer. Of a topic that does
        not exist or refuses us, only the first message is tried.
        """
        for candidate in candidates:
            if self._journal.is_done(candidate.topic, candidate.message_id, self._only_for):
                tally.before += 1
                continue
            if candidate.topic in tally.refused:
                tally.failed += 1
                continue
            answer = self._put_back(candidate)
            self._journal.add(answer)
            if answer.is_done:
                tally.replayed += 1
                continue
            tally.failed += 1
            if answer.status in _FOR_ITS_TOPIC:
                tally.refused[candidate.topic] = f"{answer.status}: {answer.error}"
            if answer.status in _FOR_ALL:
                raise CommandFailed(
                    f"{self._url} refuses messages of {answer.topic} with {answer.status}: "
                    f"{answer.error}"
                )

    def _put_back(self, candidate: Candidate) -> Replayed:
        sent_ms = self._clock.now_ms()
        status, error = 0, ""
        try:
            status, error = self._publish(candidate.make())
        except CannotReplay as reason:
            error = str(reason)
        return Replayed(
            candidate.topic, candidate.message_id, status, sent_ms, self._only_for, error
        )

    def _publish(self, request: ReplayRequest) -> tuple[int, str]:
        """Status and error of the last attempt. Raises CommandFailed if nobody answers."""
        url = f"{self._url}/topics/{quote(request.topic, safe='')}"
        headers = [(name.encode(), value) for name, value in request.headers]
        for attempt in range(1, ATTEMPTS_MAX + 1):
            self._wait_for_turn()
            pause_s = min(_PAUSE_FIRST_S * 2 ** (attempt - 1), _PAUSE_MAX_S)
            try:
                answer = self._client.post(url, content=request.body, headers=headers)
            except httpx.LocalProtocolError as error:
                return 0, f"it cannot be sent: {error}"
            except httpx.HTTPError as error:
                if attempt == ATTEMPTS_MAX:
                    raise CommandFailed(
                        f"{self._url} does not answer: {error!r}; nothing is lost: run the same "
                        "command again, and it continues where it stopped"
                    ) from error
            else:
                if answer.status_code not in _FOR_LATER or attempt == ATTEMPTS_MAX:
                    return answer.status_code, "" if answer.is_success else _why(answer)
                asked = answer.headers.get("retry-after", "")
                pause_s = max(pause_s, min(float(asked), _PAUSE_MAX_S) if asked.isdigit() else 0)
            self._sleep(pause_s)
        raise AssertionError("the last attempt returns or raises")

    def _wait_for_turn(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s:
            self._sleep(self._next_s - now_s)
        self._next_s = max(now_s, self._next_s) + self._interval_s


def _why(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])[:300]
    except (ValueError, KeyError, TypeError):
        return answer.text[:300]
