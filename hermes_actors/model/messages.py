"""Several messages that are published together, and their records."""

from collections.abc import Sequence
from typing import overload

from msgspec.structs import replace

from hermes_actors.model.message import Envelope, Message, carrying, to_record
from hermes_actors.model.record import Record
from hermes_actors.model.run import RecordRun
from hermes_actors.model.trace_context import TraceContext

Keys = Sequence[bytes | None] | bytes | None
"""One key (or none) for all messages, or a key for each."""


class MessageRun(Sequence[Message]):
    """Messages in columns: `bodies` and `ids` (UUIDs in ASCII) have the same length.

    `model` is a message with everything but id, body and key.
    """

    __slots__ = ("bodies", "ids", "keys", "model")

    def __init__(
        self, ids: Sequence[bytes], bodies: Sequence[bytes], keys: Keys, model: Message
    ) -> None:
        self.ids = ids
        self.bodies = bodies
        self.keys = keys
        self.model = model

    def __len__(self) -> int:
        return len(self.bodies)

    @overload
    def __getitem__(self, at: int) -> Message: ...

    @overload
    def __getitem__(self, at: slice) -> "MessageRun": ...

    def __getitem__(self, at: int | slice) -> "Message | MessageRun":
        keys = self.keys
        if isinstance(at, slice):
            some = keys if keys is None or isinstance(keys, bytes) else keys[at]
            return MessageRun(self.ids[at], self.bodies[at], some, self.model)
        return replace(
            self.model,
            id=self.ids[at].decode(),
            body=self.bodies[at],
            key=keys if keys is None or isinstance(keys, bytes) else keys[at],
        )


def all_carrying(messages: Sequence[Message], trace: TraceContext) -> Sequence[Message]:
    """The messages, which share a trace or have none, with this trace context."""
    if isinstance(messages, MessageRun):
        model = carrying(messages.model, trace)
        return MessageRun(messages.ids, messages.bodies, messages.keys, model)
    return [carrying(message, trace) for message in messages]


def keys_of(messages: Sequence[Message]) -> Sequence[bytes | None] | None:
    """The key of each message; None if all have the same."""
    if len(messages) == 1:
        return None
    if not isinstance(messages, MessageRun):
        return [message.key for message in messages]
    keys = messages.keys
    return None if keys is None or isinstance(keys, bytes) else keys


def records_of(
    messages: Sequence[Message], envelope: Envelope = Envelope.NATIVE, via: str = ""
) -> Sequence[Record]:
    """Encode the messages as records, a MessageRun as a RecordRun. `via` as in `to_record`."""
    if envelope is not Envelope.NATIVE or not isinstance(messages, MessageRun):
        return [to_record(message, envelope, via) for message in messages]
    # The model gives the headers; only the first one, the id, differs.
    model = to_record(messages.model, envelope, via)
    return RecordRun(
        messages.bodies, messages.ids, model.headers[1:], model.timestamp_ms, messages.keys
    )


def joined(parts: Sequence[Sequence[Record]]) -> Sequence[Record]:
    """Concatenate the records of all parts; the result is a run if all parts are runs with the same
    headers. Its time is that of the first part, which is older than the others by less than their
    time limit.
    """
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    runs = [part for part in parts if isinstance(part, RecordRun)]
    if (
        not isinstance(first, RecordRun)
        or len(runs) != len(parts)
        or any(run.headers != first.headers for run in runs)
    ):
        return [record for part in parts for record in part]
    keys = first.keys
    if isinstance(keys, list | tuple) or any(run.keys != keys for run in runs):
        keys = [key for run in runs for key in run.keys_of_each()]
    return RecordRun(
        [value for run in runs for value in run.values],
        [each for run in runs for each in run.ids],
        first.headers,
        first.timestamp_ms,
        keys,
    )
