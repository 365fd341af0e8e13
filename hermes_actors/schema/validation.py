"""The check of a topic's messages when they are published, by the topic's current schemas."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from msgspec import Struct

from hermes_actors.errors import ErrorCode, HermesError, Refused
from hermes_actors.model.message import Message
from hermes_actors.model.schema import SchemaKind
from hermes_actors.runtime.workers import Job, TooCostly, WorkerPool
from hermes_actors.schema.loop_limits import UNITS_MAX
from hermes_actors.schema.source import SchemaSource, SchemaVersion, newest_of
from hermes_actors.schema.work import loop_schema, message_cpu_s, takes, units

Checked = Message | HermesError
"""The message as it is stored, or the error that refuses it."""

Done = Callable[[Checked], None]


class BodyHead(Struct, frozen=True):
    """The part of a request's head that determines how its body is read: the Content-Type, and the
    version or id of its schema (0 if it names none).
    """

    content_type: str | None = None
    version: int = 0
    schema_id: int = 0


class Validation:
    """The check of one topic's messages by its schemas of one kind.

    Call it with a message and `done`, which it calls once, perhaps before it returns. A worker
    checks the message only if `is_wanted` still returns True.
    """

    kind: ClassVar[SchemaKind]

    def __init__(self, topic: str, source: SchemaSource, pool: WorkerPool) -> None:
        self._topic = topic
        self._source = source
        self._pool = pool
        self._newest: SchemaVersion | None = None
        self._look()

    @property
    def refusal(self) -> HermesError | None:
        """The error if no message can be accepted now; None if it depends on the message."""
        if self._newest is None:
            self._source.ask(self._topic, self._look)
        return without_schema(self._topic, self._source) if self._newest is None else None

    def units(self, body: bytes) -> int:
        """The work for this body on the loop; more than UNITS_MAX is for a worker."""
        if self._newest is None:
            return 0
        return units(loop_schema(self.kind, self._newest.schema.text), body)

    def check(self, message: Message, head: BodyHead) -> Checked:
        """Check a message of at most UNITS_MAX units immediately."""
        chosen = self._chosen(head)
        if isinstance(chosen, HermesError):
            # A later message may find it.
            self._source.ask(self._topic, _nothing)
        # An older version may be more work than `units` says.
        return self._at_once(message, head, chosen) or Refused(
            "The topic's schema is too costly to be used here; publish it by itself"
        )

    def __call__(
        self, message: Message, head: BodyHead, done: Done, is_wanted: Callable[[], bool]
    ) -> None:
        """Check a message, immediately or in a worker. An unknown schema is looked up first."""
        chosen = self._chosen(head)
        if isinstance(chosen, HermesError):
            self._source.ask(self._topic, partial(self._looked_up, message, head, done, is_wanted))
        else:
            self._check(message, head, chosen, done, is_wanted)

    def _looked_up(
        self, message: Message, head: BodyHead, done: Done, is_wanted: Callable[[], bool]
    ) -> None:
        self._look()
        self._check(message, head, self._chosen(head), done, is_wanted)

    def _check(
        self,
        message: Message,
        head: BodyHead,
        chosen: SchemaVersion | Checked,
        done: Done,
        is_wanted: Callable[[], bool],
    ) -> None:
        outcome = self._at_once(message, head, chosen)
        if outcome is not None:
            done(outcome)
            return
        assert isinstance(chosen, SchemaVersion), "else it has its outcome at once"
        version = chosen

        def worked(found: bytes | HermesError) -> None:
            if isinstance(found, TooCostly):
                found = Refused(f"Invalid message: checking it is too much: {found.message}")
            done(self._stored(message, version, found) if isinstance(found, bytes) else found)

        cpu_s, args = message_cpu_s(message.body), self._args(message, head)
        job = Job(self._topic, cpu_s, takes, (version.schema, *args), worked, is_wanted)
        self._pool.submit(job)

    def _at_once(
        self, message: Message, head: BodyHead, chosen: SchemaVersion | Checked
    ) -> Checked | None:
        """The outcome of a check on the loop; None if the message is for a worker."""
        if not isinstance(chosen, SchemaVersion):
            return chosen
        try:
            args = self._args(message, head)
            schema = loop_schema(self.kind, chosen.schema.text)
            if isinstance(schema, Refused):
                return schema
            if schema is None or units(schema, message.body) > UNITS_MAX:
                return None
            return self._stored(message, chosen, schema.take(*args))
        except Refused as error:
            return error

    def _look(self) -> None:
        self._newest = newest_of(self._source.versions_of(self._topic), self.kind)

    def _chosen(self, _head: BodyHead) -> SchemaVersion | Checked:
        """The schema version for this message, or the error if none is known."""
        return self._newest or without_schema(self._topic, self._source)

    def _args(self, message: Message, head: BodyHead) -> tuple[Any, ...]:
        """The arguments for the schema. Raises Refused."""
        raise NotImplementedError

    def _stored(self, message: Message, chosen: SchemaVersion, body: bytes) -> Message:
        """The message with the body that the schema returned."""
        raise NotImplementedError


class JsonValidation(Validation):
    """The check by a JSON Schema; a message that fits is stored unchanged."""

    kind = SchemaKind.JSON

    @property
    def is_needed(self) -> bool:
        """True if the topic has a JSON Schema, or may have one that is not known."""
        return self._newest is not None or bool(self._source.lack(self._topic))

    def _at_once(
        self, message: Message, head: BodyHead, chosen: SchemaVersion | Checked
    ) -> Checked | None:
        # The registry may have answered that the topic has no schema.
        return super()._at_once(message, head, chosen) if self.is_needed else message

    def _args(self, message: Message, _head: BodyHead) -> tuple[Any, ...]:
        return (message.body,)

    def _stored(self, message: Message, _chosen: SchemaVersion, _body: bytes) -> Message:
        return message


def without_schema(topic: str, source: SchemaSource) -> Refused:
    """The error for a topic that needs a schema if none is known."""
    why = source.lack(topic)
    reason = f": {why}; try again" if why else ""
    return Refused(
        f"No schema is known for topic {topic}{reason}", ErrorCode.SCHEMA_COULD_NOT_BE_LOADED
    )


def _nothing() -> None:
    """Does nothing after the look-up."""
