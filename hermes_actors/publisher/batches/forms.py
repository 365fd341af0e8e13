"""Parses the forms of a batch, chosen by Content-Type. Pure.

Each form turns pieces of a body into parcels: messages in columns, with an error in place of each
message that is refused.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.errors import HermesError, Refused
from hermes_actors.model.message import Headers, Message
from hermes_actors.model.run import ID_BYTES
from hermes_actors.publisher.answers import too_long_for_server
from hermes_actors.publisher.batches.splitting import ArraySplitter, LineSplitter, Splitter
from hermes_actors.publisher.cloudevents import event_in

LINES = "application/x-ndjson"
ARRAY = "application/json"
ENVELOPES = "application/vnd.hermes.messages+ndjson"
EVENTS = "application/cloudevents-batch+json"
ANSWERS = LINES

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Parcel(Struct):
    """Messages in columns, in order.

    `ids` is empty, `keys` and `models` are None if no message has any. A single message without an
    id has an empty one, without a key None. A model is a message with everything but id, body, key
    and time. `refused` has the errors of refused messages by position; their `bodies` are empty.
    """

    bodies: list[bytes]
    refused: dict[int, HermesError]
    keys: list[bytes | None] | None = None
    ids: list[bytes] = []
    models: list[Message] | None = None

    def size_of_first(self, count: int) -> int:
        """Return the size in memory of the first `count` messages: bodies, keys and headers."""
        size = sum(map(len, self.bodies[:count]))
        if self.keys is not None:
            size += sum([len(key) for key in self.keys[:count] if key is not None])
        if self.models is not None:
            size += sum([model.headers_size for model in self.models[:count]])
        return size

    def at(self, places: Sequence[int]) -> "Parcel":
        """The messages at these positions, in this order."""
        refused, keys, ids, models = self.refused, self.keys, self.ids, self.models
        return Parcel(
            [self.bodies[at] for at in places],
            {new: refused[at] for new, at in enumerate(places) if at in refused} if refused else {},
            keys and [keys[at] for at in places],
            ids and [ids[at] for at in places],
            models and [models[at] for at in places],
        )


class Form:
    """One request's body, in which each piece that the splitter cuts is a message's body."""

    def __init__(self, splitter: Splitter) -> None:
        self.splitter = splitter

    def feed(self, data: bytes) -> tuple[Parcel, bytes]:
        """Return the messages that end in this piece, and the rest of it, as `Splitter.feed`."""
        bodies, rest = self.splitter.feed(data)
        return self._parcel(bodies), rest

    def finish(self) -> Parcel:
        """Return the messages that the end of the body completes."""
        return self._parcel(self.splitter.finish())

    def _parcel(self, bodies: list[bytes]) -> Parcel:
        refused: dict[int, HermesError] = {}
        bytes_max = self.splitter.bytes_max
        if max(map(len, bodies), default=0) > bytes_max:
            error = too_long_for_server(f"more than {bytes_max} bytes", bytes_max)
            refused = {at: error for at, body in enumerate(bodies) if len(body) > bytes_max}
            bodies = [b"" if at in refused else body for at, body in enumerate(bodies)]
        return Parcel(bodies, refused)


_NONE = msgspec.Raw(b"null")


class _Envelope(Struct, forbid_unknown_fields=True):
    message: msgspec.Raw
    key: str | None = None
    id: str | None = None
    headers: msgspec.Raw = _NONE


_envelopes = msgspec.json.Decoder(_Envelope)
_headers = msgspec.json.Decoder(dict[str, str] | None)

Taken = tuple[bytes, bytes | None, bytes, Message]
"""A message's body, key, id (empty if it has none) and model."""


class WrappedForm(Form):
    """A form whose elements contain more than the message's body: `take` parses one, or raises
    Refused. `common` is the model of messages without headers.
    """

    def __init__(
        self, splitter: Splitter, common: Message, take: Callable[[bytes, Message], Taken]
    ) -> None:
        super().__init__(splitter)
        self._common = common
        self._take = take

    def _parcel(self, found: list[bytes]) -> Parcel:
        parcel = super()._parcel(found)
        bodies, common = parcel.bodies, self._common
        keys: list[bytes | None] = [None] * len(bodies)
        ids = [b""] * len(bodies)
        models = [common] * len(bodies)
        for at, text in enumerate(bodies):
            if at in parcel.refused:
                continue
            try:
                bodies[at], keys[at], ids[at], models[at] = self._take(text, common)
            except Refused as error:
                parcel.refused[at] = error
                bodies[at] = b""
        parcel.keys, parcel.ids = keys, ids
        if any(model is not common for model in models):
            parcel.models = models
        return parcel


Pick = Callable[[list[tuple[str, str]]], Headers]
"""Selects the headers of a message that are propagated."""


def _envelope(pick: Pick, head_bytes_max: int, text: bytes, common: Message) -> Taken:
    """Parse a line: a JSON object with the message, and with the key, id and headers that a single
    publish has in its HTTP headers. They are limited like those of a request.
    """
    try:
        envelope = _envelopes.decode(text)
        key = None if envelope.key is None else envelope.key.encode()
        head_bytes = len(key or b"") + len(envelope.headers)
        if head_bytes > head_bytes_max:
            raise Refused(
                f"key and headers of the line have {head_bytes} bytes; this server takes at most "
                f"{head_bytes_max} (frontend.header_bytes_max); send less, or have that raised"
            )
        own_id = b"" if envelope.id is None else _checked_id(envelope.id)
        headers = _headers.decode(envelope.headers)
        model = common if headers is None else _model(pick, common, headers)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Refused(
            f'The line is not {{"message": …, "key": …, "id": …, "headers": …}}: {error}'
        ) from error
    return bytes(envelope.message), key, own_id, model


def _model(pick: Pick, common: Message, headers: dict[str, str]) -> Message:
    named = {name.lower() for name in headers}
    inherited = [pair for pair in common.propagated if pair[0].lower() not in named]
    return replace(common, propagated=(*inherited, *pick(list(headers.items()))))


def _event(text: bytes, common: Message) -> Taken:
    """Parse an element: a CloudEvent in JSON."""
    event = event_in(text)
    return event.body, event.key, b"", replace(common, attributes=event.attributes)


def form_of(
    content_type: str | None,
    bytes_max: int,
    head_bytes_max: int,
    common: Message,
    pick: Pick,
    *,
    takes_events: bool,
) -> Form:
    """Return the form for this Content-Type. Raises Refused (415).

    A message's body may have `bytes_max` bytes; its key and headers `head_bytes_max`.
    """
    media_type = (content_type or "").partition(";")[0].strip().lower()
    if media_type in (LINES, "application/jsonl", "application/ndjson"):
        return Form(LineSplitter(bytes_max))
    if media_type == ARRAY:
        return Form(ArraySplitter(bytes_max))
    if media_type == ENVELOPES:
        return WrappedForm(
            LineSplitter(bytes_max), common, partial(_envelope, pick, head_bytes_max)
        )
    if media_type == EVENTS and takes_events:
        return WrappedForm(ArraySplitter(bytes_max), common, _event)
    accepted = [LINES, ARRAY, ENVELOPES] + [EVENTS] * takes_events
    said = f"is {media_type}, which is not a batch type" if media_type else "is missing"
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
