"""Checks messages of an AVRO topic, and converts them to the stored form."""

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.model.message import Message
from hermes_actors.model.schema import SchemaKind, WriterSchema, framed
from hermes_actors.runtime.workers import WorkerPool
from hermes_actors.schema.avro import BodyForm
from hermes_actors.schema.loop_limits import UNITS_MAX
from hermes_actors.schema.source import SchemaSource, SchemaVersion
from hermes_actors.schema.validation import BodyHead, Checked, Done, Validation

_logger = logging.getLogger(__name__)

_FORMS = {form.value: form for form in BodyForm}
_SHOWN_MAX = 100
_LOGGED_EVERY = 1_000


class AvroValidation(Validation):
    """The check by an Avro schema: a body in one of the forms of `BodyForm`, by Content-Type, is
    converted to Avro. The schema is the topic's version that the head names, else the newest.

    With `frames` the stored body begins with Confluent's five bytes. With `takes_ids` the head may
    name a schema by its id.
    """

    kind = SchemaKind.AVRO

    def __init__(
        self, topic: str, source: SchemaSource, pool: WorkerPool, *, frames: bool, takes_ids: bool
    ) -> None:
        super().__init__(topic, source, pool)
        self._frames = frames
        self._takes_ids = takes_ids

    def _args(self, message: Message, head: BodyHead) -> tuple[Any, ...]:
        metadata = {
            **dict(message.propagated),
            "messageId": message.id,
            "timestamp": str(message.published_at_ms),
        }
        return message.body, form_of(head.content_type, self._topic), metadata

    def _stored(self, message: Message, chosen: SchemaVersion, body: bytes) -> Message:
        if self._frames:
            body = framed(chosen.id, body)
        written_with = WriterSchema(chosen.number, chosen.id, self._frames)
        return replace(message, body=body, written_with=written_with)

    def _chosen(self, head: BodyHead) -> SchemaVersion | Checked:
        newest = self._newest
        own_id = head.schema_id if self._takes_ids else 0
        if not (own_id or head.version):
            return super()._chosen(head)
        if newest is not None and own_id == 0 and head.version == newest.number:
            return newest
        for each in self._source.versions_of(self._topic).values():
            is_it = each.id == own_id if own_id else each.number == head.version
            if is_it and each.schema.kind is SchemaKind.AVRO:
                return each
        return self._no_such("id", own_id) if own_id else self._no_such("version", head.version)

    def _no_such(self, what: str, number: int) -> Refused:
        doubt = self._source.doubt(self._topic, number if what == "version" else 0)
        if doubt:
            # Not 400, after which publishers give a message up.
            return Refused(
                f"Schema {what} '{number}' of topic {self._topic} is not known: {doubt}; try again",
                ErrorCode.SCHEMA_COULD_NOT_BE_LOADED,
            )
        # The text comes from Hermes.
        message = f"Given schema {what} '{number}' does not exist"
        return Refused(message, ErrorCode.SCHEMA_VERSION_DOES_NOT_EXIST)


class DryRun(AvroValidation):
    """The dry run of an Avro schema on a JSON topic: a message that cannot be converted is logged,
    and stored nevertheless. As in Hermes, a body with an unknown Content-Type is refused.
    """

    _failures = 0

    @property
    def refusal(self) -> None:
        """None: a message is refused only for its Content-Type."""

    def units(self, body: bytes) -> int:
        """The work on the loop; 0 for a message that would be too costly, which is then not tried
        in a batch.
        """
        found = super().units(body)
        return found if found <= UNITS_MAX else 0

    def check(self, message: Message, head: BodyHead) -> Checked:
        """Try to convert a message immediately."""
        return self._judged(message, head, super().check(message, head))

    def __call__(
        self, message: Message, head: BodyHead, done: Done, is_wanted: Callable[[], bool]
    ) -> None:
        """Try to convert a message, immediately or in a worker."""
        super().__call__(
            message, head, lambda outcome: done(self._judged(message, head, outcome)), is_wanted
        )

    def _judged(self, message: Message, head: BodyHead, outcome: Checked) -> Checked:
        """Return the unchanged message, unless the dry run itself is impossible."""
        if isinstance(outcome, Message):
            return message
        if outcome.code is not ErrorCode.VALIDATION_ERROR and outcome.status != 503:
            return outcome
        try:
            form_of(head.content_type, self._topic)
        except Refused as error:
            return error
        self._failures += 1
        if self._failures % _LOGGED_EVERY == 1:
            _logger.warning(
                "%s: message %s would not become Avro (failure %d of the dry run): %s",
                self._topic,
                message.id,
                self._failures,
                outcome.message,
            )
        return message


@lru_cache(maxsize=64)
def _named(content_type: str) -> BodyForm | None:
    return _FORMS.get(content_type.partition(";")[0].strip().lower())


def form_of(content_type: str | None, topic: str) -> BodyForm:
    """Return the form of a body with this Content-Type. Raises Refused."""
    form = _named(content_type or "")
    if form is not None:
        return form
    shown = "null" if content_type is None else content_type[:_SHOWN_MAX]
    raise Refused(
        f"Unsupported payload content type header {shown} for AVRO topic {topic}; send "
        f"{', '.join(_FORMS)}"
    )
