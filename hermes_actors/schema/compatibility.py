"""Checks whether one schema can read what another one has written: for Avro with Apache's library,
for JSON Schema with jsonschema_rs.

The time may grow with the product of both schemas' sizes, so none of this runs on the event loop.
"""

import warnings
from collections.abc import Mapping
from functools import lru_cache

import avro.schema
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.errors import AvroException

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.model.schema import Compatibility, Schema, SchemaKind
from hermes_actors.schema.json_schema import can_read

REASONS_MAX = 10
"""Maximum number of reasons of each kind in an error."""

_SHOWN_MAX = 200
_NO_SCHEMA = (
    *(AvroException, KeyError, TypeError, ValueError, AttributeError, IndexError),
    *(AssertionError, RecursionError, MemoryError),
)


def require_avro(text: str) -> None:
    """Raise Refused with FORMAT_ERROR unless the text is an Avro schema, of any type."""
    _parsed(text)


def disagreements(level: Compatibility, schema: Schema, others: Mapping[int, Schema]) -> list[str]:
    """Return the conflicts between a schema and other versions of its subject, at this level."""
    found: list[str] = []
    for version, other in others.items():
        if len(found) >= REASONS_MAX:
            break
        if other.kind is not schema.kind:
            found.append(f"version {version} is {other.kind}, this is {schema.kind}")
            continue
        if level.startswith(("BACKWARD", "FULL")):
            found += _unreadable(schema, other, f"it cannot read messages of version {version}")
        if level.startswith(("FORWARD", "FULL")):
            found += _unreadable(other, schema, f"version {version} cannot read its messages")
    return found


def _unreadable(reader: Schema, writer: Schema, what: str) -> list[str]:
    if reader.kind is SchemaKind.AVRO:
        why = why_unreadable(reader.text, writer.text)
    else:
        why = "" if can_read(reader.text, writer.text) else "some may be refused"
    return [f"{what}: {why}"] if why else []


def why_unreadable(reader: str, writer: str) -> str:
    """Why a reader with the Avro schema `reader` cannot read everything written with `writer`, also
    if that cannot be determined; empty string if it can.
    """
    try:
        found = ReaderWriterCompatibilityChecker().get_compatibility(  # type: ignore[no-untyped-call]
            _parsed(reader), _parsed(writer)
        )
    except (*_NO_SCHEMA, Refused) as error:
        return f"this cannot be determined: {str(error)[:_SHOWN_MAX] or type(error).__name__}"
    if found.compatibility is not SchemaCompatibilityType.incompatible:
        return ""
    sorts = sorted({each.name for each in found.incompatibilities})
    return f"{', '.join(sorts)}: {_some(found.messages)} at {_some(found.locations)}"


@lru_cache(maxsize=2)
def _parsed(text: str) -> avro.schema.Schema:
    """Parse a schema. Cached, because one side of many comparisons is always the same."""
    try:
        with warnings.catch_warnings():
            # Warnings about unknown logical types, which do not matter here.
            warnings.simplefilter("ignore")
            return avro.schema.parse(text)
    except _NO_SCHEMA as error:
        reason = str(error) or type(error).__name__
        shown = reason if len(reason) <= _SHOWN_MAX else f"{reason[:_SHOWN_MAX]}…"
        raise Refused(
            f"The schema is not an Avro schema: {shown}", ErrorCode.FORMAT_ERROR
        ) from error


def _some(texts: set[str]) -> str:
    shown = [each[:_SHOWN_MAX] for each in sorted(texts)[:REASONS_MAX]]
    return ", ".join([*shown, "and more"] if len(texts) > REASONS_MAX else shown)
