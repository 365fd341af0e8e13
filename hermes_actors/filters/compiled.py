"""All filters of a subscription as one question to a message: a message passes all, or is left out.

Each type of filter has its compiler in `TYPES`; another type needs an entry there.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import msgspec

from hermes_actors.filters.avropath import AvroPath, avro_text
from hermes_actors.filters.budget import LOOK_EVERY, LOOP_BYTES_MAX, Budget, BudgetSpent
from hermes_actors.filters.failures import FilterFailed, FilterInvalid, NotJson
from hermes_actors.filters.paths import CompiledPath
from hermes_actors.filters.patterns import PATTERN_SIZE_MAX, Pattern, compiled_size
from hermes_actors.model.message import Headers
from hermes_actors.model.subscription import Filter

_decode = msgspec.json.Decoder().decode
_UNREAD = object()

PARTS_MAX = 100_000
"""Arrays, objects and fields of a message that filters look into: decoding, which nothing can
interrupt, takes 40 ms at most.
"""
PATHS_CHARACTERS_MAX = 20_000
"""All paths of a subscription together: a tenth of a second to compile, as much as the matchers."""

_UNTIMED_BYTES_MAX = 4_096
_SOON_COMPILED_SIZE = 1_000
_COMPILED_AT_LEAST = 20


class Candidate:
    """A message as filters see it; its body is decoded once, if any of them looks into it.

    `decode` is how; with one the message `is_avro`, whatever its body is by now.
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
        """The decoded body; None while nobody has looked into it."""
        return None if self._document is _UNREAD else self._document

    def document(self, budget: Budget) -> Any:
        """The decoded body. Raises NotJson, and BudgetSpent, and what `decode` raises."""
        if self._document is _UNREAD:
            # A few bytes of Avro may hold much.
            is_timed = self.is_avro or len(self.body) > _UNTIMED_BYTES_MAX
            if is_timed:
                self._require_room(budget)
            try:
                self._document = self._decode(self.body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise NotJson(f"the message is not JSON: {error}") from error
            if is_timed:
                budget.look()
        return self._document

    def _require_room(self, budget: Budget) -> None:
        budget.look()
        size_bytes = len(self.body)
        if size_bytes <= LOOP_BYTES_MAX:
            return
        if not budget.is_aside:
            raise BudgetSpent(f"the message of {size_bytes} bytes is too large for the loop")
        # Those within texts count too, which only makes it less.
        if sum(map(self.body.count, (b"{", b"[", b":"))) > PARTS_MAX:
            raise BudgetSpent(
                f"the message has more than {PARTS_MAX} arrays, objects and fields, too many to be "
                "looked into"
            )


class MessageFilter(Protocol):
    """One compiled filter."""

    @property
    def looks_at_headers(self) -> bool:
        """True if it needs the message's propagated headers, and nothing else of it."""

    def passes(self, candidate: Candidate, budget: Budget) -> bool:
        """True if the message is wanted. Raises FilterFailed, and BudgetSpent."""


class PathFilter:
    """Values that a path finds in the message must match: all of them, or any."""

    looks_at_headers = False

    def __init__(
        self,
        wanted: Filter,
        path: type[CompiledPath | AvroPath],
        text_of: Callable[[Any], str],
        *,
        is_for_avro: bool,
    ) -> None:
        assert wanted.path, "looked at before"
        self._path = path(wanted.path)
        self._text_of = text_of
        self._is_for_avro = is_for_avro
        self._matches = Pattern(wanted.matcher).matches
        self._is_any = wanted.matching_strategy.lower() == "any"

    def passes(self, candidate: Candidate, budget: Budget) -> bool:
        """False if nothing is found; a null is taken as the text `null` in Avro's paths only."""
        matches, is_any, text_of = self._matches, self._is_any, self._text_of
        if candidate.is_avro and not self._is_for_avro:
            raise FilterFailed("the message is Avro, which this filter does not ask; use avropath")
        is_matched = False
        for value in self._path.values(candidate.document(budget), budget):
            if value is None and not self._is_for_avro:
                return False
            budget.spend(LOOK_EVERY if type(value) is dict or type(value) is list else 1)
            if not (is_any and is_matched):
                is_matched = matches(text_of(value), budget)
                if not is_matched and not is_any:
                    return False
        return is_matched


class HeaderFilter:
    """A propagated header of this very name, letter for letter, must be there and match."""

    looks_at_headers = True

    def __init__(self, wanted: Filter) -> None:
        assert wanted.header, "looked at before"
        self._name = wanted.header
        self._matches = Pattern(wanted.matcher).matches

    def passes(self, candidate: Candidate, budget: Budget) -> bool:
        """False if the header is absent."""
        budget.spend()
        for name, value in candidate.propagated:
            if name == self._name:
                return self._matches(value, budget)
        return False


def text_of(value: Any) -> str:
    """Give the text that a matcher is compared with: a string bare, all else as compact JSON."""
    if type(value) is str:
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (OverflowError, RecursionError):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


TYPES: Mapping[str, Callable[[Filter], MessageFilter]] = {
    "jsonpath": partial(PathFilter, path=CompiledPath, text_of=text_of, is_for_avro=False),
    "avropath": partial(PathFilter, path=AvroPath, text_of=avro_text, is_for_avro=True),
    "header": HeaderFilter,
}
"""The types of filter that can be asked, and what compiles each."""


def require_known(wanted: Filter) -> None:
    """Raise FilterInvalid, that names the field, for a filter that this version cannot ask; what
    only compiling shows is not looked at.
    """
    if wanted.type not in TYPES:
        raise FilterInvalid(
            "type", f"'{wanted.type}' cannot be asked by this version; use {', '.join(TYPES)}"
        )
    field = "header" if wanted.type == "header" else "path"
    if not getattr(wanted, field):
        raise FilterInvalid(field, "must not be null")


def compile_filter(wanted: Filter) -> MessageFilter:
    """Compile a filter. Raises FilterInvalid that names the field."""
    require_known(wanted)
    return TYPES[wanted.type](wanted)


def is_soon_compiled(wanted: Sequence[Filter]) -> bool:
    """True if compiling all of them takes some milliseconds at most."""
    left = _SOON_COMPILED_SIZE
    for each in wanted:
        left -= compiled_size(each.matcher) + len(each.path or "") + _COMPILED_AT_LEAST
        if left < 0:
            return False
    return True


def problems(wanted: Sequence[Filter], budget: Budget) -> Iterator[str]:
    """Give each filter's faults, as `filters[0].path must …`; an unknown type is none.

    Work is bounded: they are compiled only while all of them together are of bounded size. Raises
    BudgetSpent.
    """
    left, paths_left = PATTERN_SIZE_MAX, PATHS_CHARACTERS_MAX
    for index, each in enumerate(wanted):
        paths_left -= len(each.path or "")
        if paths_left < 0:
            yield (
                f"filters[{index}].path must leave all paths together at most "
                f"{PATHS_CHARACTERS_MAX} characters"
            )
            return
        left -= compiled_size(each.matcher)
        if left < 0:
            yield (
                f"filters[{index}].matcher must leave all matchers together at most "
                f"{PATTERN_SIZE_MAX} characters, with their repetitions ({{n}}) written out"
            )
            return
        if each.type not in TYPES:
            continue
        budget.spend(LOOK_EVERY)
        try:
            compile_filter(each)
        except FilterInvalid as error:
            yield f"filters[{index}].{error}"


def refusal(wanted: Sequence[Filter]) -> str:
    """Why this version cannot ask one of them, soon told; "" when it can."""
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
    """The filters of one subscription, in their order: the first that does not pass decides."""

    def __init__(self, wanted: Sequence[Filter], budget: Budget) -> None:
        """Compile all. Raises FilterInvalid, that names filter and field, and BudgetSpent."""
        self._filters: list[tuple[str, MessageFilter]] = []
        for index, each in enumerate(wanted):
            budget.spend(LOOK_EVERY)
            with _placed(index):
                self._filters.append((each.type, compile_filter(each)))
        self.looks_at_headers = any(each.looks_at_headers for _, each in self._filters)
        self.looks_into_bodies = not all(each.looks_at_headers for _, each in self._filters)

    def rejects(self, candidate: Candidate, budget: Budget) -> str:
        """The type of the filter that leaves the message out; "" when it passes all of them. The
        budget is for all of them together.

        Raises FilterFailed and BudgetSpent, whose text begins with the filter's place.
        """
        for index, (kind, each) in enumerate(self._filters):
            try:
                if not each.passes(candidate, budget):
                    return kind
            except (FilterFailed, BudgetSpent) as error:
                error.args = (f"filters[{index}]: {error}",)
                raise
        return ""
