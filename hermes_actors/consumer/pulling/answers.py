"""Answers what clients of a pull subscription ask, as JSON."""

import base64
import re
from collections.abc import Sequence

import msgspec
import trio

from hermes_actors.consumer.pulling.dispatch import PullDispatch
from hermes_actors.consumer.pulling.hand_outs import HandOut
from hermes_actors.model.message import Message
from hermes_actors.model.moments import iso_ms
from hermes_actors.model.pulling import (
    AckRequest,
    Asked,
    NackRequest,
    PulledMessage,
    PullRequest,
    ReceivedMessage,
    Settled,
)
from hermes_actors.runtime.clock import Clock

_IN_A_TURN_BYTES = 262_144
_OVERHEAD_BYTES = 4_096
# Many clients refuse the whole answer for such a number.
_LONG_NUMBER = re.compile(rb"(?:^|[\s:,\[-])[0-9]{301}")
_skim = msgspec.json.Decoder(msgspec.Raw).decode


async def answered(hand_out: PullDispatch, asked: Asked, clock: Clock) -> bytes:
    """The answer's JSON. Raises Unavailable, and NotOwned."""
    if isinstance(asked, PullRequest):
        outs = await hand_out.pull(asked.max_messages, asked.wait_ms / 1_000)
        try:
            return await _pulled(outs, clock, in_base64=asked.base64)
        except trio.Cancelled:
            # Nobody gets them.
            hand_out.undo(outs)
            raise
    ids = asked.ack_ids
    if isinstance(asked, AckRequest):
        refused = await hand_out.acknowledge(ids)
    elif isinstance(asked, NackRequest):
        refused = await hand_out.give_back(ids, asked.delay_ms)
    else:
        refused = await hand_out.extend(ids, asked.ack_deadline_seconds)
    return msgspec.json.encode(Settled(len(ids) - len(refused), refused))


async def _pulled(outs: Sequence[HandOut], clock: Clock, *, in_base64: bool) -> bytes:
    now_ms, now_s = clock.now_ms(), clock.monotonic_s()
    received, unbroken = [], 0
    for out in outs:
        message = out.delivery.first
        unbroken += len(message.body) + _OVERHEAD_BYTES
        if unbroken > _IN_A_TURN_BYTES:
            unbroken = 0
            await trio.lowlevel.checkpoint()
        received.append(
            msgspec.Raw(
                msgspec.json.encode(
                    ReceivedMessage(
                        ack_id=str(out.ack_id),
                        delivery_attempt=out.delivery.attempts + 1,
                        ack_deadline=iso_ms(now_ms + int((out.until_s - now_s) * 1_000)),
                        message=_shown(message, in_base64=in_base64),
                    )
                )
            )
        )
    return msgspec.json.encode({"receivedMessages": received})


def _shown(message: Message, *, in_base64: bool) -> PulledMessage:
    attributes = dict(message.propagated)
    attributes |= {f"ce-{name}": value for name, value in message.attributes}
    if message.traceparent:
        attributes["traceparent"] = message.traceparent
    if message.written_with is not None:
        attributes["Schema-Version"] = str(message.written_with.version)
        attributes["Schema-Id"] = str(message.written_with.id)
    is_json = not (in_base64 or message.is_tombstone or message.written_with) and _is_json(
        message.body
    )
    in_base64 = not (message.is_tombstone or is_json)
    return PulledMessage(
        message_id=message.id,
        publish_time=iso_ms(message.published_at_ms),
        json=msgspec.Raw(message.body) if is_json else msgspec.UNSET,
        data=base64.b64encode(message.body).decode() if in_base64 else None,
        ordering_key="" if message.key is None else message.key.decode(errors="backslashreplace"),
        attributes=attributes,
    )


def _is_json(body: bytes) -> bool:
    """True if the body can stand in an answer as it is."""
    try:
        body.decode()
        _skim(body)
        return not _LONG_NUMBER.search(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
