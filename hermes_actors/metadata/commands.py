"""The commands of the metadata log, and their encoding.

MessagePack maps with named fields and a `type` tag: self-describing, and bodies stay bytes (JSON
would need base64). Decoding is strict: on a node that does not know a command's type, field or
version, the command has no effect, instead of half of its effect.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from hermes_actors.model.record import Headers, Record
from hermes_actors.model.redaction import hidden_bytes, redacted

VERSION = 1
METADATA_TOPIC = "_hermes.metadata"
RECORD_BYTES_MAX = 1_000_000
"""The largest change that is written. The topic allows a little more, so that each change can be
copied.
"""

TOPIC_RECORD_BYTES_MAX = 1_048_576

Text = Annotated[str, Meta(min_length=1, max_length=1_024)]
Id = Annotated[str, Meta(min_length=1, max_length=128)]
# Below 2⁶², so that a stamp greater than any copied stamp can still be encoded.
Stamp = Annotated[int, Meta(ge=0, lt=2**62)]
Prefix = Annotated[str, Meta(min_length=1, max_length=1_024, pattern="/$")]


class StampIs(Struct, frozen=True, tag="stamp_is", forbid_unknown_fields=True):
    """The key is alive with this stamp: it has not changed since it was read."""

    key: Text
    stamp: Stamp


class Absent(Struct, frozen=True, tag="absent", forbid_unknown_fields=True):
    """The key is not alive: never created, or deleted."""

    key: Text


class Alive(Struct, frozen=True, tag="alive", forbid_unknown_fields=True):
    """The key is alive in this incarnation."""

    key: Text
    incarnation: Stamp


class Childless(Struct, frozen=True, tag="childless", forbid_unknown_fields=True):
    """No key with this prefix is alive. The prefix ends with `/`."""

    prefix: Prefix


Precondition = StampIs | Absent | Alive | Childless


class Change(Struct, frozen=True):
    """A requested change of one key: a new body, or None to delete it.

    The fold accepts it if the preconditions hold when it is folded. Deletion also requires that the
    key is alive. Build changes with `put` and `delete`.
    """

    key: str
    body: bytes | None
    preconditions: tuple[Precondition, ...] = ()

    def __repr__(self) -> str:
        return redacted(self, body=hidden_bytes(self.body))


def put(key: str, body: bytes, *preconditions: Precondition) -> Change:
    """Create or change the key with this body, as the preconditions allow."""
    return Change(key, body, preconditions)


def delete(key: str, *preconditions: Precondition) -> Change:
    """Delete the key permanently: a later creation starts a new incarnation."""
    return Change(key, None, preconditions)


class Accepted(Struct, frozen=True):
    """The change was made; the stamp is the version that clients see."""

    incarnation: int
    stamp: int


class Rejected(Struct, frozen=True):
    """The change was not made, because this precondition did not hold when it was folded."""

    failed: Precondition


ChangeOutcome = Accepted | Rejected


class Seen(Struct, frozen=True, forbid_unknown_fields=True):
    """The last command that a writer had folded: its offset and id."""

    offset: Annotated[int, Meta(ge=-1)]
    id: Annotated[str, Meta(max_length=128)]


NOTHING_SEEN = Seen(-1, "")


class LogCreated(Struct, frozen=True, tag="log_created", forbid_unknown_fields=True):
    """The first command of a log: its datacentre, and a random id that identifies the log.

    Records before it have no effect. If there are several, the first counts.
    """

    id: Id
    dc: Text
    v: Annotated[int, Meta(ge=VERSION, le=VERSION)] = VERSION


class Put(Struct, frozen=True, tag="put", forbid_unknown_fields=True):
    """Set a key's body."""

    id: Id
    key: Text
    body: bytes
    preconditions: Annotated[tuple[Precondition, ...], Meta(max_length=16)]
    seen: Seen
    v: Annotated[int, Meta(ge=VERSION, le=VERSION)] = VERSION

    def __repr__(self) -> str:
        return redacted(self, body=hidden_bytes(self.body))


class Delete(Struct, frozen=True, tag="delete", forbid_unknown_fields=True):
    """Delete a key."""

    id: Id
    key: Text
    preconditions: Annotated[tuple[Precondition, ...], Meta(max_length=16)]
    seen: Seen
    v: Annotated[int, Meta(ge=VERSION, le=VERSION)] = VERSION


class Copy(Struct, frozen=True, tag="copy", forbid_unknown_fields=True):
    """A register copied from another datacentre; `body` None is a tombstone.

    `origin_dc`, `origin_log` and `origin_offset` say how far that log has been copied, including
    this change. `dc` is where the change was first accepted.
    """

    id: Id
    key: Text
    body: bytes | None
    incarnation: Stamp
    stamp: Stamp
    dc: Text
    origin_dc: Text
    origin_log: Id
    origin_offset: Annotated[int, Meta(ge=-1)]
    v: Annotated[int, Meta(ge=VERSION, le=VERSION)] = VERSION

    def __post_init__(self) -> None:
        if self.incarnation > self.stamp:
            raise ValueError("an incarnation is the stamp of an earlier change")

    def __repr__(self) -> str:
        return redacted(self, body=hidden_bytes(self.body))


Command = LogCreated | Put | Delete | Copy


class UndecodableCommand(Exception):
    """The record is not a command that this version knows; the message says why."""


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)


def to_command(change: Change, command_id: str, seen: Seen) -> Put | Delete:
    """Make the command for a change. Repeating it with the same id is harmless."""
    if change.body is None:
        return Delete(command_id, change.key, change.preconditions, seen)
    return Put(command_id, change.key, change.body, change.preconditions, seen)


def encode(command: Command, timestamp_ms: int, headers: Headers = ()) -> Record:
    """Encode the command as a record; the record's key is only informative, and the fold ignores
    the headers.
    """
    key = "" if isinstance(command, LogCreated) else command.key
    return Record(key.encode(), _encoder.encode(command), headers, timestamp_ms)


def decode(value: bytes) -> Command:
    """Decode the command from a record's value. Raises UndecodableCommand."""
    try:
        return _decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UndecodableCommand(str(error)) from error
