"""All filters of a subscription as one question to a message: a message passes all, or is left out.

Each type of filter has its compiler in `TYPES`; another type needs an entry there.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from hermes_actors.filters.failures import FilterFailed, FilterInvalid, NotJson
from hermes_actors.filters.paths import Path
from hermes_actors.filters.patterns import PATTERN_SIZE_MAX, Pattern, pattern_size
from hermes_actors.model.message import Headers
from hermes_actors.model.subscription import Filter

_decode = msgspec.json.Decoder().decode
_UNREAD = object()


class Candidate:
    """A message as filters see it; its body is decoded once, if any of them looks into it."""

    __slots__ = ("_document", "body", "propagated")

    def __init__(self, body: bytes, propagated: Headers = ()) -> None:
        self.body = body
        self.propagated = propagated
        self._document: Any = _UNREAD

    def document(self) -> Any:
        """The body as decoded JSON. Raises NotJson."""
        if self._document is _UNREAD:
            try:
                self._document = _decode(self.body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise NotJson(f"the message is not JSON: {error}") from error
        return self._document


class MessageFilter(Protocol):
    """One compiled filter."""

    @property
    def looks_at_headers(self) -> bool:
        """True if it needs the message's propagated headers."""

    def passes(self, candidate: Candidate) -> bool:
        """True if the message is wanted. Raises FilterFailed."""


class JsonPathFilter:
    """Values that a path finds in the message must match: all of them, or any."""

    looks_at_headers = False

    def __init__(self, wanted: Filter) -> None:
        if not wanted.path:
            raise FilterInvalid("path", "must not be null")
        self._path = Path(wanted.path)
        self._matches = Pattern(wanted.matcher).matches
        self._is_any = wanted.matching_strategy.lower() == "any"

    def passes(self, candidate: Candidate) -> bool:
        """False if nothing is found, and if null is."""
        values = self._path.values(candidate.document(), candidate.body)
        if not values or None in values:
            return False
        matches = self._matches
        if len(values) == 1:
            return matches(text_of(values[0]))
        texts = map(text_of, values)
        return any(map(matches, texts)) if self._is_any else all(map(matches, texts))


class HeaderFilter:
    """A propagated header of this very name, letter for letter, must be there and match."""

    looks_at_headers = True

    def __init__(self, wanted: Filter) -> None:
        if not wanted.header:
            raise FilterInvalid("header", "must not be null")
        self._name = wanted.header
        self._matches = Pattern(wanted.matcher).matches

    def passes(self, candidate: Candidate) -> bool:
        """False if the header is absent."""
        for name, value in candidate.propagated:
            if name == self._name:
                return self._matches(value)
        return False


TYPES: Mapping[str, Callable[[Filter], MessageFilter]] = {
    "jsonpath": JsonPathFilter,
    "header": HeaderFilter,
}
"""The types of filter that can be asked, and what compiles each."""


def text_of(value: Any) -> str:
    """What a matcher is compared with: a string bare, all else as compact JSON."""
    if type(value) is str:
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (OverflowError, RecursionError):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def compile_filter(wanted: Filter) -> MessageFilter:
    """Raises FilterInvalid that names the field."""
    make = TYPES.get(wanted.type)
    if make is None:
        raise FilterInvalid(
            "type", f"'{wanted.type}' cannot be asked by this version; use {', '.join(TYPES)}"
        )
    return make(wanted)


def problems(wanted: Sequence[Filter]) -> Iterator[str]:
    """What is wrong with each of them, as `filters[0].path must …`; a type that is unknown is not.

    Work is bounded: they are compiled only while all of them together are of bounded size.
    """
    left = PATTERN_SIZE_MAX
    for index, each in enumerate(wanted):
        left -= pattern_size(each.matcher)
        if left < 0:
            yield (
                f"filters[{index}].matcher must leave all matchers together at most "
                f"{PATTERN_SIZE_MAX} characters, with their repetitions ({{n}}) written out"
            )
            return
        if each.type not in TYPES:
            continue
        try:
            compile_filter(each)
        except FilterInvalid as error:
            yield f"filters[{index}].{error}"


class Filters:
    """The filters of one subscription, in their order: the first that does not pass decides."""

    def __init__(self, wanted: Sequence[Filter]) -> None:
        """Raises FilterInvalid that names the filter and the field."""
        self._filters: list[tuple[str, MessageFilter]] = []
        for index, each in enumerate(wanted):
            try:
                self._filters.append((each.type, compile_filter(each)))
            except FilterInvalid as error:
                raise FilterInvalid(f"filters[{index}].{error.field}", error.reason) from error
        self.looks_at_headers = any(each.looks_at_headers for _, each in self._filters)

    def rejects(self, candidate: Candidate) -> str:
        """The type of the filter that leaves the message out; "" when it passes all of them.

        Raises FilterFailed, whose text begins with the filter's place.
        """
        for index, (kind, each) in enumerate(self._filters):
            try:
                if not each.passes(candidate):
                    return kind
            except FilterFailed as error:
                error.args = (f"filters[{index}]: {error}",)
                raise
        return ""
