"""All filters of a subscription as one check: a message passes all of them, or is filtered out.

Each filter type has its compiler in `TYPES`; add an entry there for another type.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import msgspec

from hermes_actors.filters.avropath import AvroPath, avro_text
from hermes_actors.filters.failures import FilterFailed, FilterInvalid, NotJson, TooLong
from hermes_actors.filters.loop_time import LoopTime
from hermes_actors.filters.paths import CompiledPath
from hermes_actors.filters.patterns import Pattern, is_for_loop
from hermes_actors.model.message import Headers
from hermes_actors.model.subscription import Filter

_decode = msgspec.json.Decoder().decode
_UNREAD = object()

LOOP_BYTES_MAX = 65_536
"""A larger body is decoded in a worker."""

LOOP_VALUES_MAX = 100
"""How many values found by a path are matched on the loop; more in a worker."""

_LOOP_CHARACTERS_MAX = 1_000


class Candidate:
    """A message for the filters; its body is decoded at most once, when a filter needs it.

    `decode` decodes the body; if it is given, the message `is_avro`, even if its body has been
    converted.
    """

    __slots__ = ("_decode", "_document", "body", "is_avro", "propagated")

    def __init__(
        self, body: bytes, propagated: Headers = (), decode: Callable[[bytes], Any] | None = None
    ) -> None:
        self.body = body
        self.propagated = propagated
        self.is_avro = decode is not None
        self._decode = decode or _decode
        self._document: Any = _UNREAD

    @property
    def decoded(self) -> Any:
        """The decoded body; None if no filter has needed it."""
        return None if self._document is _UNREAD else self._document

    def document(self) -> Any:
        """The decoded body. Raises NotJson, and what `decode` raises."""
        if self._document is _UNREAD:
            try:
                self._document = self._decode(self.body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise NotJson(f"the message is not JSON: {error}") from error
        return self._document


class MessageFilter(Protocol):
    """A compiled filter."""

    def passes(self, candidate: Candidate, time: LoopTime | None) -> bool:
        """True if the message passes. Raises FilterFailed; TooLong on the loop."""


class PathFilter:
    """The values that a path finds in the message must match: all of them, or any."""

    def __init__(
        self,
        wanted: Filter,
        path: type[CompiledPath | AvroPath],
        text_of: Callable[[Any], str],
        *,
        is_for_avro: bool,
    ) -> None:
        assert wanted.path, "checked by require_known"
        self._path = path(wanted.path)
        self._text_of = text_of
        self._is_for_avro = is_for_avro
        self._matches = Pattern(wanted.matcher).matches
        self._is_any = wanted.matching_strategy.lower() == "any"

    def passes(self, candidate: Candidate, time: LoopTime | None) -> bool:
        """False if nothing is found. A null counts as the text `null` in Avro paths only."""
        if candidate.is_avro and not self._is_for_avro:
            raise FilterFailed("the message is Avro, which this filter cannot read; use avropath")
        size_bytes = len(candidate.body)
        if time is not None and (
            size_bytes > LOOP_BYTES_MAX or not self._path.is_for_loop(size_bytes)
        ):
            raise TooLong
        values = self._path.values(candidate.document())
        if time is not None and len(values) > LOOP_VALUES_MAX:
            raise TooLong
        if not values or (not self._is_for_avro and None in values):
            return False
        wanted = any if self._is_any else all
        return wanted(self._matches(self._text_of(value), time) for value in values)


class HeaderFilter:
    """A propagated header with exactly this name must exist and match."""

    def __init__(self, wanted: Filter) -> None:
        assert wanted.header, "checked by require_known"
        self._name = wanted.header
        self._matches = Pattern(wanted.matcher).matches

    def passes(self, candidate: Candidate, time: LoopTime | None) -> bool:
        """False if the header is missing."""
        for name, value in candidate.propagated:
            if name == self._name:
                return self._matches(value, time)
        return False


def text_of(value: Any) -> str:
    """Return the text to compare with a matcher: a string bare, everything else as compact JSON.
    Raises FilterFailed.
    """
    if type(value) is str:
        return value
    try:
        try:
            return msgspec.json.encode(value).decode()
        except OverflowError:
            # An integer of more than 64 bits.
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError as error:
        raise FilterFailed("what its path finds nests too deep") from error


TYPES: Mapping[str, Callable[[Filter], MessageFilter]] = {
    "jsonpath": partial(PathFilter, path=CompiledPath, text_of=text_of, is_for_avro=False),
    "avropath": partial(PathFilter, path=AvroPath, text_of=avro_text, is_for_avro=True),
    "header": HeaderFilter,
}
"""The filter types, with their compilers."""


def require_known(wanted: Filter) -> None:
    """Raise FilterInvalid, naming the field, for a filter of an unknown type or without its path or
    header. Does not compile it.
    """
    if wanted.type not in TYPES:
        raise FilterInvalid(
            "type", f"'{wanted.type}' is not a filter type of this version; use {', '.join(TYPES)}"
        )
    field = "header" if wanted.type == "header" else "path"
    if not getattr(wanted, field):
        raise FilterInvalid(field, "must not be null")


def compile_filter(wanted: Filter) -> MessageFilter:
    """Compile a filter. Raises FilterInvalid, naming the field."""
    require_known(wanted)
    return TYPES[wanted.type](wanted)


def is_soon_compiled(wanted: Sequence[Filter]) -> bool:
    """True if the filters may be compiled on the loop: few and small ones."""
    characters = sum(len(each.matcher) + len(each.path or "") for each in wanted)
    return characters <= _LOOP_CHARACTERS_MAX and all(is_for_loop(each.matcher) for each in wanted)


def refusal(wanted: Sequence[Filter]) -> str:
    """Why this version cannot use one of the filters, without compiling them; empty string if it
    can.
    """
    try:
        for index, each in enumerate(wanted):
            with _placed(index):
                require_known(each)
    except FilterInvalid as error:
        return str(error)
    return ""


@contextmanager
def _placed(index: int) -> Iterator[None]:
    try:
        yield
    except FilterInvalid as error:
        raise FilterInvalid(f"filters[{index}].{error.field}", error.reason) from error


class Filters:
    """The filters of one subscription, in order; the first one that rejects decides."""

    def __init__(self, wanted: Sequence[Filter]) -> None:
        """Compile all filters. Raises FilterInvalid, naming filter and field."""
        self._filters: list[tuple[str, MessageFilter]] = []
        for index, each in enumerate(wanted):
            with _placed(index):
                self._filters.append((each.type, compile_filter(each)))

    def rejects(self, candidate: Candidate, time: LoopTime | None = None) -> str:
        """Return the type of the filter that rejects the message; empty string if it passes all.

        Raises FilterFailed, whose text begins with the filter's place; TooLong when the `time` on
        the loop, which all filters share, is used up.
        """
        for index, (kind, each) in enumerate(self._filters):
            if time is not None and index:
                time.left_s()
            try:
                if not each.passes(candidate, time):
                    return kind
            except FilterFailed as error:
                error.args = (f"filters[{index}]: {error}",)
                raise
        return ""
