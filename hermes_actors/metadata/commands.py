"""The commands of the metadata log, and their one encoding.

MessagePack maps with named fields and a `type` tag: self-describing, and a body stays the bytes it
is (JSON would have to base64 it). Decoding is strict: a command with an unknown type, field or
version has no effect in any node that does not know it, instead of half of its effect.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from hermes_actors.model.record import Headers, Record
from hermes_actors.model.redaction import hidden_bytes, redacted

VERSION = 1
METADATA_TOPIC = "_hermes.metadata"
RECORD_BYTES_MAX = 1_000_000
"""The largest change that is written; the topic takes a little more, so that each can be copied."""

TOPIC_RECORD_BYTES_MAX = 1_048_576

Text = Annotated[str, Meta(min_length=1, max_length=1_024)]
Id = Annotated[str, Meta(min_length=1, max_length=128)]
# Below 2⁶², so that a stamp one above any copied stamp is still an integer that can be encoded.
Stamp = Annotated[int, Meta(ge=0, lt=2**62)]
Prefix = Annotated[str, Meta(min_length=1, max_length=1_024, pattern="/$")]


class StampIs(Struct, frozen=True, tag="stamp_is", forbid_unknown_fields=True):
    """The key is alive and its stamp is this one: nobody has changed it since it was read."""

    key: Text
    stamp: Stamp


class Absent(Struct, frozen=True, tag="absent", forbid_unknown_fields=True):
    """The key is not alive: never created, or deleted."""

    key: Text


class Alive(Struct, frozen=True, tag="alive", forbid_unknown_fields=True):
    """The key is alive and in this incarnation."""

    key: Text
    incarnation: Stamp


class Childless(Struct, frozen=True, tag="childless", forbid_unknown_fields=True):
    """No key that starts with the prefix is alive. The prefix ends with `/`."""

    prefix: Prefix


Precondition = StampIs | Absent | Alive | Childless


class Change(Struct, frozen=True):
    """A change that somebody asks for to one key: a new body, or None to delete it.

    The fold accepts it if the preconditions hold then. Deleting also requires that the key is
    alive. Build it with `put` and `delete`.
    """

    key: str
    body: bytes | None
    preconditions: tuple[Precondition, ...] = ()

    def __repr__(self) -> str:
        return redacted(self, body=hidden_bytes(self.body))


def put(key: str, body: bytes, *preconditions: Precondition) -> Change:
    """Give the key this body; creates it, or changes it, as the preconditions allow."""
    return Change(key, body, preconditions)


def delete(key: str, *preconditions: Precondition) -> Change:
    """Delete the key, for good: a later creation starts a new incarnation."""
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
    """The last command that a writer had folded: its offset and its id."""

    offset: Annotated[int, Meta(ge=-1)]
    id: Annotated[str, Meta(max_length=128)]


NOTHING_SEEN = Seen(-1, "")


class LogCreated(Struct, frozen=True, tag="log_created", forbid_unknown_fields=True):
    """The first command of a log: whose it is, and a random id that identifies it.

    Nothing before it has an effect; of several the first counts.
    """

    id: Id
    dc: Text
    v: Annotated[int, Meta(ge=VERSION, le=VERSION)] = VERSION


class Put(Struct, frozen=True, tag="put", forbid_unknown_fields=True):
    """Give a key a body."""

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
    """A register as another datacentre holds it; `body` None is a tombstone.

    `origin_dc`, `origin_log` and `origin_offset` say how far that log has been copied with this.
    `dc` is where the change was first accepted.
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
    """The record holds no command that this version knows; the message says why."""


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)


def to_command(change: Change, command_id: str, seen: Seen) -> Put | Delete:
    """The command that asks for the change; the same id makes a repetition harmless."""
    if change.body is None:
        return Delete(command_id, change.key, change.preconditions, seen)
    return Put(command_id, change.key, change.body, change.preconditions, seen)


def encode(command: Command, timestamp_ms: int, headers: Headers = ()) -> Record:
    """The record that stores the command; its key is for people and their tools only, and the fold
    does not look at its headers.
    """
    key = "" if isinstance(command, LogCreated) else command.key
    return Record(key.encode(), _encoder.encode(command), headers, timestamp_ms)


def decode(value: bytes) -> Command:
    """The command that a record's value holds. Raises UndecodableCommand."""
    try:
        return _decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UndecodableCommand(str(error)) from error
