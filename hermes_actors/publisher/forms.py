"""The forms in which a batch of messages comes: what each Content-Type says. Pure.

Each form turns pieces of a body into parcels: messages in columns, with a refusal in the place of
one that cannot be taken.
"""

import re
from collections.abc import Callable
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.errors import HermesError, Refused
from hermes_actors.model.message import Headers, Message
from hermes_actors.model.run import ID_BYTES
from hermes_actors.publisher.answers import too_long_for_server
from hermes_actors.publisher.cloudevents import event_in
from hermes_actors.publisher.splitting import (
    ArraySplitter,
    Found,
    LineSplitter,
    Oversized,
    Splitter,
)

LINES = "application/x-ndjson"
ARRAY = "application/json"
ENVELOPES = "application/vnd.hermes.messages+ndjson"
EVENTS = "application/cloudevents-batch+json"
ANSWERS = LINES

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Parcel(Struct):
    """Messages in columns, in order. `keys`, `ids` and `models` are None where none says any; a
    model is a message that has all but id, body, key and time. `refused` are those that are not
    taken, by their place, where `bodies` has b"".
    """

    bodies: list[bytes]
    refused: dict[int, HermesError]
    keys: list[bytes | None] | None = None
    ids: list[bytes | None] | None = None
    models: list[Message] | None = None

    def first(self, count: int) -> "Parcel":
        """The first `count` messages."""
        return self._part(slice(0, count))

    def after(self, count: int) -> "Parcel":
        """All but the first `count` messages."""
        return self._part(slice(count, len(self.bodies)))

    def size_of_first(self, count: int) -> int:
        """What the first `count` messages take in memory: bodies, keys and headers."""
        size = sum(map(len, self.bodies[:count]))
        if self.keys is not None:
            size += sum([len(key) for key in self.keys[:count] if key is not None])
        if self.models is not None:
            size += sum([model.headers_size for model in self.models[:count]])
        return size

    def _part(self, part: slice) -> "Parcel":
        return Parcel(
            self.bodies[part],
            {
                at - part.start: error
                for at, error in self.refused.items()
                if part.start <= at < part.stop
            },
            self.keys and self.keys[part],
            self.ids and self.ids[part],
            self.models and self.models[part],
        )


class Form(Protocol):
    """One request's body. `size_at_once` is its splitter's."""

    size_at_once: Callable[[bytes], int]

    @property
    def failure(self) -> str:
        """Why nothing can be read from here on, or ""."""

    def feed(self, data: bytes) -> Parcel:
        """The messages that end in this piece."""

    def finish(self) -> Parcel:
        """The messages that the body's end completes."""


class BodiesForm:
    """Each thing that the splitter finds is a message's body."""

    def __init__(self, splitter: Splitter, bytes_max: int) -> None:
        self.size_at_once: Callable[[bytes], int] = splitter.size_at_once
        self._splitter = splitter
        self._bytes_max = bytes_max

    @property
    def failure(self) -> str:
        """Why nothing can be read from here on, or ""."""
        return self._splitter.failure

    def feed(self, data: bytes) -> Parcel:
        """The messages that end in this piece."""
        return self._parcel(self._splitter.feed(data))

    def finish(self) -> Parcel:
        """The messages that the body's end completes."""
        return self._parcel(self._splitter.finish())

    def _parcel(self, found: Found) -> Parcel:
        refused: dict[int, HermesError] = {}
        if Oversized in map(type, found):
            for at, each in enumerate(found):
                if isinstance(each, Oversized):
                    refused[at] = too_long_for_server(f"{each.size_bytes} bytes", self._bytes_max)
                    found[at] = b""
        return Parcel(found, refused)  # type: ignore[arg-type]


class _Envelope(Struct, forbid_unknown_fields=True):
    message: msgspec.Raw
    key: str | None = None
    id: str | None = None
    headers: dict[str, str] | None = None


class EnvelopesForm(BodiesForm):
    """Each line is a JSON object: the message, and what a single publish says in headers.

    `pick` chooses which of a message's headers travel with it.
    """

    _decoder = msgspec.json.Decoder(_Envelope)

    def __init__(
        self,
        splitter: Splitter,
        bytes_max: int,
        common: Message,
        pick: Callable[[list[tuple[str, str]]], Headers],
    ) -> None:
        super().__init__(splitter, bytes_max)
        self._common = common
        self._pick = pick

    def _parcel(self, found: Found) -> Parcel:
        lines = super()._parcel(found)
        count = len(lines.bodies)
        parcel = Parcel([b""] * count, lines.refused, [None] * count, [None] * count)
        has_headers = has_ids = False
        models = [self._common] * count
        assert parcel.keys is not None and parcel.ids is not None, "just made"  # noqa: PT018
        decode = self._decoder.decode
        for at, line in enumerate(lines.bodies):
            if at in parcel.refused:
                continue
            try:
                envelope = decode(line)
                if envelope.key is not None:
                    parcel.keys[at] = envelope.key.encode()
                if envelope.id is not None:
                    parcel.ids[at] = _checked_id(envelope.id)
                    has_ids = True
                if envelope.headers is not None:
                    models[at] = self._model(envelope.headers)
                    has_headers = True
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                parcel.refused[at] = Refused(
                    f'The line is not {{"message": …, "key": …, "id": …, "headers": …}}: {error}'
                )
            except Refused as error:
                parcel.refused[at] = error
            else:
                parcel.bodies[at] = bytes(envelope.message)
        if not has_ids:
            parcel.ids = None
        if has_headers:
            parcel.models = models
        return parcel

    def _model(self, headers: dict[str, str]) -> Message:
        common = self._common
        named = {name.lower() for name in headers}
        inherited = [pair for pair in common.propagated if pair[0].lower() not in named]
        picked = self._pick(list(headers.items()))
        return replace(common, propagated=(*inherited, *picked))


class EventsForm(BodiesForm):
    """Each element is a CloudEvent in JSON."""

    def __init__(self, splitter: Splitter, bytes_max: int, common: Message) -> None:
        super().__init__(splitter, bytes_max)
        self._common = common

    def _parcel(self, found: Found) -> Parcel:
        parcel = super()._parcel(found)
        common = self._common
        parcel.keys = [None] * len(parcel.bodies)
        parcel.models = [common] * len(parcel.bodies)
        for at, text in enumerate(parcel.bodies):
            if at in parcel.refused:
                continue
            try:
                event = event_in(text)
            except Refused as error:
                parcel.refused[at] = error
                parcel.bodies[at] = b""
                continue
            parcel.bodies[at] = event.body
            parcel.keys[at] = event.key
            parcel.models[at] = replace(common, attributes=event.attributes)
        return parcel


def form_of(
    content_type: str | None,
    bytes_max: int,
    common: Message,
    pick: Callable[[list[tuple[str, str]]], Headers],
    *,
    takes_events: bool,
) -> Form:
    """The form that the Content-Type names. Raises Refused (415)."""
    media_type = (content_type or "").partition(";")[0].strip().lower()
    if media_type in (LINES, "application/jsonl", "application/ndjson"):
        return BodiesForm(LineSplitter(bytes_max), bytes_max)
    if media_type == ARRAY:
        return BodiesForm(ArraySplitter(bytes_max), bytes_max)
    if media_type == ENVELOPES:
        return EnvelopesForm(LineSplitter(bytes_max), bytes_max, common, pick)
    if media_type == EVENTS and takes_events:
        return EventsForm(ArraySplitter(bytes_max), bytes_max, common)
    accepted = [LINES, ARRAY, ENVELOPES] + [EVENTS] * takes_events
    said = f"is {media_type}, which is no batch" if media_type else "is missing"
    raise Refused(
        f"Content-Type {said}; send {', '.join(accepted[:-1])} or {accepted[-1]}", status=415
    )


def _checked_id(text: str) -> bytes:
    if len(text) != ID_BYTES or not _UUID.fullmatch(text):
        raise Refused(
            "id is not a UUID in lower case, such as 8e03978e-40d5-43dd-bc93-6894a57f9324; "
            "leave it out to get one"
        )
    return text.encode()
