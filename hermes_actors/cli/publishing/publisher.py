"""Publishes many messages over a few kept-alive connections; each has one PublishResult."""

import random
import ssl
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from urllib.parse import quote

import msgspec
import trio

from hermes_actors.cli.command_line.credentials import SHOW_WHO
from hermes_actors.cli.command_line.failures import CommandFailed, first_of
from hermes_actors.cli.connection.management import error_of
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
from hermes_actors.runtime.backoff import Backoff
from hermes_actors.runtime.clock import Clock

_BACKOFF_MAX_S = 5.0
_RETRY_AFTER_MAX_S = 60.0
# Every other message would get this refusal too.
_REFUSES_ALL = (401, 403, 404, 405, 415)


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message to publish; `number` is its line or row, counted from 1."""

    number: int
    body: bytes
    key: str | None = None


class PublishResult(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The outcome of a message. Status 0: the last attempt had no answer, so it is unknown.

    `sent_ms` is the wall-clock time of the first attempt, `latency_ms` the duration of the last.
    """

    number: int
    status: int
    message_id: str
    attempts: int
    sent_ms: int
    latency_ms: float
    error: str = ""
    is_in_memory: bool = False

    @property
    def is_accepted(self) -> bool:
        """True if it is stored (201), or on the node's disk until it can be stored (202)."""
        return self.status in (201, 202)

    @property
    def is_kept(self) -> bool:
        """True if it is on the node's disk, to be stored later."""
        return self.status == 202


@dataclass(frozen=True, slots=True)
class PublishPlan:
    """How to publish: target, concurrency, retries."""

    url: str
    topic: str
    connections: int = 8
    retries: int = 3
    timeout_s: float = 10.0
    headers: Sequence[tuple[str, str]] = (("Content-Type", "application/json"),)
    tls: ssl.SSLContext | None = None


class Unreachable(Exception):
    """No connection could be made after all retries, so publishing stops."""


class BulkPublisher:
    """Publishes a stream of messages according to a plan. In trio, as a guest of the host loop.

    `done` is called once for each message that was sent. A refusal that would apply to every
    message ends the run; then `is_cut_short` is true if some messages were not sent.
    """

    def __init__(
        self,
        plan: PublishPlan,
        done: Callable[[PublishResult], None],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._plan = plan
        self._done = done
        self._clock = clock
        self._rng = rng
        self._route = route_to(plan.url, f"/topics/{quote(plan.topic, safe='')}")
        self._is_refused = False
        self._source = trio.CancelScope()
        self.is_cut_short = False

    async def run(self, messages: AsyncGenerator[OutgoingMessage, None]) -> None:
        """Publish all messages.

        Raises Unreachable if no connection can be made any more. Raises CommandFailed of the
        source, after the messages before it are done.
        """
        plan = self._plan
        send, receive = trio.open_memory_channel[OutgoingMessage](plan.connections)
        lost: BaseException | None = None
        source_failed: CommandFailed | None = None
        try:
            async with (
                open_poster(plan.connections, timeout_s=plan.timeout_s, tls=plan.tls) as poster,
                trio.open_nursery() as nursery,
            ):
                for _ in range(plan.connections):
                    nursery.start_soon(self._serve, poster, receive.clone())
                receive.close()
                async with send, aclosing(messages):
                    try:
                        with self._source:
                            async for message in messages:
                                await send.send(message)
                    except CommandFailed as failure:
                        source_failed = failure
        except* CannotConnect as group:
            lost = first_of(group)
        self.is_cut_short |= self._source.cancelled_caught
        if source_failed is not None:
            raise source_failed
        if lost is not None:
            raise Unreachable(str(lost)) from lost

    async def _serve(self, poster: Poster, of: trio.MemoryReceiveChannel[OutgoingMessage]) -> None:
        async with of:
            async for message in of:
                if self._is_refused:
                    self.is_cut_short = True
                    continue
                await self._publish(poster, message)

    async def _publish(self, poster: Poster, message: OutgoingMessage) -> None:
        """Send the message until it is accepted or refused. Raises CannotConnect."""
        sent_ms, attempt = self._clock.now_ms(), 0
        backoff = Backoff(self._rng, wait_max_s=_BACKOFF_MAX_S)
        headers = list(self._plan.headers)
        if message.key is not None:
            headers.append(("Partition-Key", message.key))
        lines = header_lines(headers)
        while True:
            attempt += 1
            is_last = attempt > self._plan.retries
            began_s = self._clock.monotonic_s()
            status, message_id, error, asked_s, is_in_memory = 0, "", "", 0.0, False
            try:
                answer = await poster.post(self._route, lines, message.body, self._plan.timeout_s)
            except (CannotConnect, NoAnswer) as failure:
                if is_last and isinstance(failure, CannotConnect):
                    raise
                error = str(failure)
            else:
                status = answer.status
                if status in _REFUSES_ALL:
                    self._is_refused = True
                    self._source.cancel()
                message_id = answer.headers.get(b"hermes-message-id", b"").decode("latin-1")
                error = "" if status in (201, 202) else _error(answer, self._plan.url)
                is_in_memory = status == 201 and b"hermes-durability" in answer.headers
                asked = answer.headers.get(b"retry-after", b"").decode("latin-1")
                asked_s = (retry_after_ms(asked, self._clock.now_ms()) or 0.0) / 1_000
            if is_last or status not in (0, 429, 503):
                break
            await trio.sleep(max(backoff.next_s(), min(asked_s, _RETRY_AFTER_MAX_S)))
        took_ms = (self._clock.monotonic_s() - began_s) * 1_000
        number = message.number
        outcome = status, message_id, attempt, sent_ms, took_ms, error, is_in_memory
        self._done(PublishResult(number, *outcome))


def percentile(sorted_values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile of values in ascending order; 0 if there are none."""
    if not sorted_values:
        return 0.0
    rank = max(1, -(-len(sorted_values) * percent // 100))
    return sorted_values[int(rank) - 1]


# By status: its meaning if the server gives no text, and the remedy.
_WAYS_OUT = {
    401: ("credentials are missing or not valid", SHOW_WHO),
    403: (
        "this account may not publish to the topic",
        f"{SHOW_WHO}; 'hermes topic show TOPIC' has the topic's auth.publishers",
    ),
}


def _error(answer: PostAnswer, url: str) -> str:
    code, text = error_of(answer.body)
    hint = f"is {url} a publish API (default port 8080)?"
    if 300 <= answer.status < 400:
        return f"redirects are not followed: use the address that {url} leads to"
    if 200 <= answer.status < 300:
        return f"{hint} That answers 201 or 202"
    text = f"{code}: {text}" if code else text
    if answer.status in (404, 405) and code in ("", "OTHER"):
        # A frontend that does not know a group or topic says so with a code.
        return f"{text}; {hint}" if text else hint
    if code == "TOPIC_NOT_EXISTS":
        return f"{text}; create it with 'hermes topic create', or see 'hermes topic list'"
    if answer.status in _WAYS_OUT:
        reason, way_out = _WAYS_OUT[answer.status]
        return f"{text or reason}; {way_out}"
    return text
