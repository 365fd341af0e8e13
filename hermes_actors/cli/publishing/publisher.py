"""Publishes many messages over some kept-alive connections; each ends as one Outcome."""

import json
import random
import ssl
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from urllib.parse import quote

import trio

from hermes_actors.cli.command_line.credentials import SHOW_WHO
from hermes_actors.cli.command_line.failures import CommandFailed
from hermes_actors.cli.connection.poster import (
    CannotConnect,
    NoAnswer,
    PostAnswer,
    Poster,
    header_lines,
    open_poster,
    route_to,
)
from hermes_actors.consumer.delivery.retry import retry_after_ms
from hermes_actors.runtime.clock import Clock

_BACKOFF_FIRST_MS = 50
_BACKOFF_MAX_MS = 5_000
_RETRY_AFTER_MAX_MS = 60_000


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message to publish; `number` is its line or row, counted from 1."""

    number: int
    body: bytes
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a message ended. Status 0: the last attempt had no answer, so its fate is unknown.

    `sent_ms` is the wall-clock time of the first attempt, `latency_ms` that of the last one.
    """

    number: int
    status: int
    message_id: str
    attempts: int
    sent_ms: int
    latency_ms: float
    error: str = ""

    @property
    def is_accepted(self) -> bool:
        """Stored (201), or safe on the node's disk until it is (202)."""
        return self.status in (201, 202)

    @property
    def is_kept(self) -> bool:
        """True when it is on the node's disk, to be stored later."""
        return self.status == 202


@dataclass(frozen=True, slots=True)
class MessageAnswer:
    """One answer's word on a message: 201 or 202 with its id, or why not. Status 0: no answer.

    `retry_after_ms` is how long the server wants to be left alone.
    """

    status: int
    message_id: str = ""
    error: str = ""
    retry_after_ms: float = 0.0

    @property
    def is_for_later(self) -> bool:
        """True for what may go better a moment later."""
        return self.status == 0 or is_retriable(self.status)


@dataclass(frozen=True, slots=True)
class PublishPlan:
    """Where to, how many at a time, how often again, and what each request carries: `batch`
    messages at most.
    """

    url: str
    topic: str
    connections: int = 8
    retries: int = 3
    timeout_s: float = 10.0
    batch: int = 1
    headers: Sequence[tuple[str, str]] = (("Content-Type", "application/json"),)
    tls: ssl.SSLContext | None = None


# By status: what it means where the server says nothing, and what to do.
_WAYS_OUT = {
    401: ("credentials are needed, or those shown do not hold", SHOW_WHO),
    403: (
        "this account may not publish to the topic",
        f"{SHOW_WHO}; 'hermes topic show TOPIC' has the topic's auth.publishers",
    ),
}


class Unreachable(Exception):
    """No connection could be made after all retries, so going on is of no use."""


def refuses_all(status: int) -> bool:
    """True for a refusal of who asks, or of the topic: every other message would get it too."""
    return status in (401, 403, 404, 405, 415)


def is_retriable(status: int) -> bool:
    """True for what may go better a moment later; everything else would be refused again."""
    return status in (429, 503)


def backoff_ms(attempt: int, rng: random.Random) -> float:
    """The pause after the given attempt (from 1): doubling from 50 ms to 5 s, half of it random."""
    full = min(_BACKOFF_FIRST_MS * 2 ** (attempt - 1), _BACKOFF_MAX_MS)
    return float(full) * (0.5 + rng.random() / 2)


class BulkPublisher:
    """Publishes a stream of messages by a plan, for a guest of the host loop.

    `done` is called once for each message that was sent, in the order of their answers. A refusal
    that every message would get ends the run: `is_cut_short` says that some were then not sent.
    """

    def __init__(
        self, plan: PublishPlan, done: Callable[[Outcome], None], clock: Clock, rng: random.Random
    ) -> None:
        self._plan = plan
        self._done = done
        self._clock = clock
        self._rng = rng
        self._path = f"/topics/{quote(plan.topic, safe='')}"
        self._route = route_to(plan.url, self._path)
        self._lines = header_lines(plan.headers)
        self._is_refused = False
        self._source_scope = trio.CancelScope()
        self.is_cut_short = False

    async def run(self, messages: AsyncGenerator[OutgoingMessage, None]) -> None:
        """Publish all of them.

        Raises Unreachable when no connection can be made any more, and CommandFailed of the
        source, after what came before it has ended.
        """
        send, receive = trio.open_memory_channel[OutgoingMessage](
            self._plan.connections * self._plan.batch
        )
        unreachable: list[CannotConnect] = []
        source_failed: list[CommandFailed] = []

        async def connection(
            poster: Poster, of: trio.MemoryReceiveChannel[OutgoingMessage]
        ) -> None:
            try:
                async with of:
                    await self._serve(poster, of)
            except CannotConnect as error:
                unreachable.append(error)
                nursery.cancel_scope.cancel()

        plan = self._plan
        async with (
            open_poster(plan.connections, timeout_s=plan.timeout_s, tls=plan.tls) as poster,
            trio.open_nursery() as nursery,
        ):
            for _ in range(plan.connections):
                nursery.start_soon(connection, poster, receive.clone())
            receive.close()
            async with send, aclosing(messages):
                try:
                    with self._source_scope:
                        async for message in messages:
                            await send.send(message)
                except CommandFailed as failure:
                    source_failed.append(failure)
        self.is_cut_short |= self._source_scope.cancelled_caught
        if source_failed:
            raise source_failed[0]
        if unreachable:
            raise Unreachable(str(unreachable[0])) from unreachable[0]

    async def _serve(self, poster: Poster, of: trio.MemoryReceiveChannel[OutgoingMessage]) -> None:
        async for message in of:
            if not self._is_left_out():
                self._done(await self._publish(poster, message))

    def _is_left_out(self) -> bool:
        """True for a message that need not be sent any more."""
        self.is_cut_short |= self._is_refused
        return self._is_refused

    def _stop(self) -> None:
        """Send nothing more: what is under way ends, what the source has is left there."""
        self._is_refused = True
        self._source_scope.cancel()

    def _pause_ms(self, attempt: int, asked_ms: float) -> float:
        """How long to wait after the given attempt: as long as the server asks for, at least."""
        return max(backoff_ms(attempt, self._rng), min(asked_ms, _RETRY_AFTER_MAX_MS))

    async def _publish(self, poster: Poster, message: OutgoingMessage) -> Outcome:
        """One message, with its retries. Raises CannotConnect after the last one."""
        plan = self._plan
        lines = self._lines
        if message.key is not None:
            lines += header_lines([("Partition-Key", message.key)])
        sent_ms = self._clock.now_ms()
        attempt = 0
        while True:
            attempt += 1
            began_s = self._clock.monotonic_s()
            told = MessageAnswer(0)
            try:
                answer = await poster.post(self._route, lines, message.body, plan.timeout_s)
                told = read_answer(answer, plan.url, self._clock.now_ms())
            except CannotConnect:
                if attempt > plan.retries:
                    raise
            except NoAnswer as lost:
                told = MessageAnswer(0, error=str(lost))
            latency_ms = (self._clock.monotonic_s() - began_s) * 1_000
            if not told.is_for_later or attempt > plan.retries:
                if refuses_all(told.status):
                    self._stop()
                return outcome(message, told, attempt, sent_ms, latency_ms)
            await trio.sleep(self._pause_ms(attempt, told.retry_after_ms) / 1_000)


def outcome(
    message: OutgoingMessage, told: MessageAnswer, attempts: int, sent_ms: int, latency_ms: float
) -> Outcome:
    """How the message ended, from what the last answer says of it."""
    return Outcome(
        message.number, told.status, told.message_id, attempts, sent_ms, latency_ms, told.error
    )


def read_answer(answer: PostAnswer, url: str, now_ms: int) -> MessageAnswer:
    """Return what an answer says; `now_ms` is the wall clock, for Retry-After as a date."""
    message_id = answer.headers.get(b"hermes-message-id", b"").decode("latin-1")
    if answer.status in (201, 202):
        return MessageAnswer(answer.status, message_id)
    return MessageAnswer(
        answer.status, message_id, _error(answer, url), asked_pause_ms(answer, now_ms)
    )


def asked_pause_ms(answer: PostAnswer, now_ms: int) -> float:
    """The answer's Retry-After from now on; 0 when it has none."""
    text = answer.headers.get(b"retry-after", b"").decode("latin-1")
    return retry_after_ms(text, now_ms) or 0.0


def _error(answer: PostAnswer, url: str) -> str:
    text = answer.body[:500].decode("utf-8", "replace")
    code = ""
    try:
        body = json.loads(answer.body)
        code = str(body["code"])
        text = f"{code}: {body['message']}"
    except (ValueError, KeyError, TypeError):
        # Errors of the HTTP layer have no body of Hermes' shape; the raw text is all there is.
        pass
    if 300 <= answer.status < 400:
        text = f"redirects are not followed: name the address that {url} leads to"
    if answer.status in (404, 405) and code in ("", "OTHER"):
        # A publishing side that misses a group or a topic says so by its code.
        hint = f"is {url} a publishing side (default port 8080)?"
        text = f"{text}; {hint}" if text else hint
    if answer.status in _WAYS_OUT:
        reason, way_out = _WAYS_OUT[answer.status]
        text = f"{text or reason}; {way_out}"
    return text


def percentile(sorted_values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile of values in ascending order; 0 for none."""
    if not sorted_values:
        return 0.0
    rank = max(1, -(-len(sorted_values) * percent // 100))
    return sorted_values[int(rank) - 1]
