"""A compiled JSON Schema: checks messages, says which field is wrong, and compares versions.

The language is draft 2020-12, or an earlier draft that `$schema` names. Patterns match in linear
time (no look-around, no back-references), `$ref` must stay within the schema, and `format` is not
checked, as the standard allows.
"""

from itertools import islice
from typing import Any

import jsonschema_rs
import msgspec

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.schema.loop_limits import json_parts

ERRORS_MAX = 10
"""Maximum number of errors reported for one message."""

_LISTED_BYTES_MAX = 4_096
"""Above this size only the first error is reported, because finding all of them takes 5 µs each."""

_SHOWN_MAX = 200
_WHOLE = ("enum", "const")
_REGEXES = jsonschema_rs.RegexOptions(size_limit=100_000)
_KINDS = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    type(None): "null",
}


class JsonSchema:
    """A compiled schema. `parts` is its size for the loop's limit; None if it may only be used in a
    worker.
    """

    def __init__(self, text: str) -> None:
        """Compile the schema. Raises Refused with FORMAT_ERROR; the message gives the reason."""
        schema = _decoded(text)
        self.parts = json_parts(schema)
        self._validator = _compiled(schema)

    def take(self, body: bytes) -> bytes:
        """Return the body if it fits the schema. Raises Refused with the reasons."""
        try:
            value = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _invalid([f"it is not valid JSON: {error}"]) from error
        try:
            if self._validator.is_valid(value):
                return body
            raise _invalid(self._reasons(value, len(body)))
        except ValueError as error:
            # It is nested too deep for the library.
            raise _invalid([str(error)]) from error

    def _reasons(self, value: Any, size_bytes: int) -> list[str]:
        if size_bytes > _LISTED_BYTES_MAX:
            try:
                self._validator.validate(value)
            except jsonschema_rs.ValidationError as error:
                return [_reason(error)]
        found = list(islice(self._validator.iter_errors(value), ERRORS_MAX + 1))
        reasons = [_reason(error) for error in found[:ERRORS_MAX]]
        return [*reasons, "and more"] if len(found) > ERRORS_MAX else reasons


def can_read(reader: str, writer: str) -> bool:
    """True if `reader` allows every message that `writer` allows.

    Both are texts of valid JSON Schemas. False also if that cannot be determined.
    """
    try:
        sets = [
            jsonschema_rs.canonicalize(_decoded(each), pattern_options=_REGEXES, offline=True)
            for each in (reader, writer)
        ]
        return sets[0].covers(sets[1]) == jsonschema_rs.canonical.Containment.YES
    except ValueError:
        # For example schemas of different drafts.
        return False


def _decoded(text: str) -> Any:
    try:
        schema = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _malformed(f"it is not valid JSON: {error}") from error
    if not isinstance(schema, dict | bool):
        raise _malformed(f"it must be an object, or true or false, not {_kind(schema)}")
    return schema


def _compiled(schema: Any) -> jsonschema_rs.Validator:
    try:
        return jsonschema_rs.validator_for(
            schema, pattern_options=_REGEXES, offline=True, validate_formats=False
        )
    except jsonschema_rs.ValidationError as error:
        raise _malformed(f"{_path(error)}: {error.message[:_SHOWN_MAX]}") from error
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise _malformed(str(error)[:_SHOWN_MAX]) from error


def _malformed(reason: str) -> Refused:
    return Refused(f"The schema is not a JSON Schema: {reason}", ErrorCode.FORMAT_ERROR)


def _invalid(reasons: list[str]) -> Refused:
    return Refused(f"Invalid message: {'; '.join(reasons)}")


def _reason(error: jsonschema_rs.ValidationError) -> str:
    """Describe one error: the field, the rule, and the kind of value found; never the value
    itself.
    """
    path, kind = _path(error), error.kind
    match kind:
        case jsonschema_rs.ValidationErrorKind.Required():
            return f"{_child(path, kind.property)} is missing"
        case jsonschema_rs.ValidationErrorKind.Type():
            return f"{path} must be {_one_of(kind.types)}, not {_kind(error.instance)}"
        case jsonschema_rs.ValidationErrorKind.AdditionalProperties():
            names = ", ".join(_child(path, name) for name in kind.unexpected[:ERRORS_MAX])
            return f"{names[:_SHOWN_MAX]} is not allowed: the schema names no such field"
    rule = kind.name
    # Other parameters may hold parts of the message.
    limit = next(iter(kind.as_dict().values()), None)
    shown = f" {_shown(limit)}" if isinstance(limit, str | float | int) or rule in _WHOLE else ""
    return f"{path} breaks the rule {rule}{shown}; it is {_kind(error.instance)}"


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def _path(error: jsonschema_rs.ValidationError) -> str:
    path = ""
    for step in error.instance_path:
        path = _child(path, step)
    return path[:_SHOWN_MAX] or "the message"


def _child(path: str, step: str | int) -> str:
    if path == "the message":
        path = ""
    if isinstance(step, int):
        return f"{path}[{step}]"
    return f"{path}.{step}" if path else step


def _one_of(types: list[str]) -> str:
    articles = {"object": "an ", "array": "an ", "integer": "an ", "null": ""}
    return " or ".join(articles.get(each, "a ") + each for each in types)


def _kind(value: Any) -> str:
    """The kind of a decoded JSON value, with its article."""
    return _KINDS.get(type(value), "a number")
