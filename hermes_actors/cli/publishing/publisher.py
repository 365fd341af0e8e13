"""Publishes many messages over some kept-alive connections; each ends as one Outcome."""

import json
import random
import ssl
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from urllib.parse import quote

import msgspec
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
                await self._publish(poster, [message])

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

    async def _publish(self, poster: Poster, group: list[OutgoingMessage]) -> None:
        """One request, and others for what is to be tried again. Raises CannotConnect."""
        retries = self._plan.retries
        sent_ms = self._clock.now_ms()
        attempt = 0
        while group:
            attempt += 1
            began_s = self._clock.monotonic_s()
            try:
                answers = await self._attempt(poster, group)
            except CannotConnect as error:
                if attempt > retries:
                    raise
                answers = [MessageAnswer(0, error=str(error))] * len(group)
            except NoAnswer as lost:
                answers = [MessageAnswer(0, error=str(lost))] * len(group)
            latency_ms = (self._clock.monotonic_s() - began_s) * 1_000
            again: list[OutgoingMessage] = []
            asked_ms = 0.0
            for message, told in zip(group, answers, strict=True):
                if attempt <= retries and told.is_for_later:
                    again.append(message)
                    asked_ms = max(asked_ms, told.retry_after_ms)
                else:
                    self._done(outcome(message, told, attempt, sent_ms, latency_ms))
            group = again
            if group:
                await trio.sleep(self._pause_ms(attempt, asked_ms) / 1_000)

    async def _attempt(
        self, poster: Poster, group: Sequence[OutgoingMessage]
    ) -> list[MessageAnswer]:
        """Send the group once; return what is said of each message.

        Raises CannotConnect and NoAnswer.
        """
        (message,) = group
        lines = self._lines
        if message.key is not None:
            lines += header_lines([("Partition-Key", message.key)])
        answer = await poster.post(self._route, lines, message.body, self._plan.timeout_s)
        if refuses_all(answer.status):
            self._stop()
        return [read_answer(answer, self._plan.url, self._clock.now_ms())]


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
    if code == "TOPIC_NOT_EXISTS":
        text += "; create it with 'hermes topic create', or see 'hermes topic list'"
    if 200 <= answer.status < 300:
        text = f"is {url} a publishing side (default port 8080)? Those say 201 or 202"
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


BATCH_MAX = 4_000
# A pipe that is followed must not wait for a whole batch.
_GATHER_S = 0.05
_LINES = "application/x-ndjson"
_ENVELOPES = "application/vnd.hermes.messages+ndjson"


class _Line(msgspec.Struct):
    status: int
    id: str = ""
    message: str = ""
    code: str = ""


_decoder = msgspec.json.Decoder(_Line)


class BatchPublisher(BulkPublisher):
    """As BulkPublisher, with `plan.batch` messages at most in a request."""

    async def _serve(self, poster: Poster, of: trio.MemoryReceiveChannel[OutgoingMessage]) -> None:
        async for message in of:
            if self._is_left_out():
                continue
            group = [message]
            with trio.move_on_after(_GATHER_S), suppress(trio.EndOfChannel):
                while len(group) < self._plan.batch:
                    group.append(await of.receive())
            await self._publish(poster, group)

    async def _attempt(
        self, poster: Poster, group: Sequence[OutgoingMessage]
    ) -> list[MessageAnswer]:
        plan = self._plan
        content_type, body = _body(group)
        headers = [pair for pair in plan.headers if pair[0].lower() != "content-type"]
        headers.append(("Content-Type", content_type))
        route = route_to(plan.url, self._path + "/batch")
        answer = await poster.post(route, header_lines(headers), body, plan.timeout_s)
        if answer.status != 200:
            # A request that is too large for the node, or a batch that it does not take.
            if refuses_all(answer.status) or answer.status == 413:
                self._stop()
            return [read_answer(answer, plan.url, self._clock.now_ms())] * len(group)
        try:
            lines = _decoder.decode_lines(answer.body)
        except msgspec.MsgspecError as error:
            return [MessageAnswer(0, error=f"the answer cannot be read: {error}")] * len(group)
        asked_ms = asked_pause_ms(answer, self._clock.now_ms())
        told = [
            MessageAnswer(
                each.status,
                each.id,
                f"{each.code}: {each.message}" if each.message else "",
                asked_ms,
            )
            for each in lines
            if each.id
        ]
        ends = [f"{each.code}: {each.message}" for each in lines if not each.id]
        rest = MessageAnswer(0, "", "the answer ends before it", asked_ms)
        if ends:
            rest = MessageAnswer(503, "", ends[0], asked_ms)
        return (told + [rest] * len(group))[: len(group)]


def _body(group: Sequence[OutgoingMessage]) -> tuple[str, bytes]:
    """Content-Type and body."""
    if all(message.key is None for message in group):
        return _LINES, b"".join([message.body + b"\n" for message in group])
    lines = []
    for message in group:
        key = b"" if message.key is None else b'"key":%b,' % json.dumps(message.key).encode()
        lines.append(b'{%b"message":%b}\n' % (key, message.body))
    return _ENVELOPES, b"".join(lines)
