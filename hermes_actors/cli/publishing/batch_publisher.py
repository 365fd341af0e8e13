"""Publishes many messages in each request; a message is tried again by itself if it was refused."""

import json
from collections.abc import Sequence
from contextlib import suppress

import msgspec
import trio

from hermes_actors.cli.connection.poster import (
    CannotConnect,
    NoAnswer,
    Poster,
    header_lines,
    route_to,
)
from hermes_actors.cli.publishing.publisher import (
    BulkPublisher,
    MessageAnswer,
    OutgoingMessage,
    asked_pause_ms,
    outcome,
    read_answer,
    refuses_all,
)

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
            await self._publish_group(poster, group)

    async def _publish_group(self, poster: Poster, group: list[OutgoingMessage]) -> None:
        """One request, and others for what is to be tried again. Raises CannotConnect."""
        plan = self._plan
        sent_ms = self._clock.now_ms()
        attempt = 0
        while group:
            attempt += 1
            began_s = self._clock.monotonic_s()
            lines = await self._attempt(poster, group, is_last=attempt > plan.retries)
            latency_ms = (self._clock.monotonic_s() - began_s) * 1_000
            again: list[OutgoingMessage] = []
            asked_ms = 0.0
            for message, told in zip(group, lines, strict=True):
                if attempt <= plan.retries and told.is_for_later:
                    again.append(message)
                    asked_ms = max(asked_ms, told.retry_after_ms)
                    continue
                self._done(outcome(message, told, attempt, sent_ms, latency_ms))
            group = again
            if group:
                await trio.sleep(self._pause_ms(attempt, asked_ms) / 1_000)

    async def _attempt(
        self, poster: Poster, group: Sequence[OutgoingMessage], *, is_last: bool
    ) -> list[MessageAnswer]:
        """Send the group once; return what is said of each message.

        Raises CannotConnect if it is the last attempt, and there is no connection.
        """
        plan = self._plan
        content_type, body = _body(group)
        headers = [pair for pair in plan.headers if pair[0].lower() != "content-type"]
        headers.append(("Content-Type", content_type))
        route = route_to(plan.url, self._path + "/batch")
        try:
            answer = await poster.post(route, header_lines(headers), body, plan.timeout_s)
        except CannotConnect as error:
            if is_last:
                raise
            return [MessageAnswer(0, error=str(error))] * len(group)
        except NoAnswer as lost:
            return [MessageAnswer(0, error=str(lost))] * len(group)
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
