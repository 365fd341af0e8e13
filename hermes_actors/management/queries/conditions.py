"""Hermes' query language: conditions on the fields of JSON objects. Pure.

`{"owner.id":"sales"}`, `{"name":{"like":"shop.*"}}`, `{"or":[{…},{…}]}`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.filters.failures import FilterInvalid, TooLong
from hermes_actors.filters.loop_time import LoopTime
from hermes_actors.filters.patterns import LOOP_SIZE_MAX, Pattern, is_for_loop

Object = Mapping[str, Any]
QUERY_BYTES_MAX = 8_192
"""Maximum size of a query: its patterns are compiled on the loop, and each object is compared with
all of it.
"""
_CPU_S_MAX = 2.0
_Test = Callable[[Object, LoopTime], bool]
_ValueTest = Callable[[Any, LoopTime], bool]


class _NoSuchField(Exception):
    """The object has no such field, so it does not fulfil the query."""


class Query:
    """The conditions in `{"query": {…}}`, all of which an object must fulfil.

    Raises Refused: FORMAT_ERROR if the query is malformed or too large, OTHER if a bound is not a
    number. `cpu_s`: the CPU clock that limits the query.
    """

    def __init__(self, body: Object, cpu_s: Callable[[], float]) -> None:
        self._cpu_s = cpu_s
        self._used_s = 0.0
        if (size := len(msgspec.json.encode(body))) > QUERY_BYTES_MAX:
            raise _malformed(
                f"has {size} bytes; the maximum is {QUERY_BYTES_MAX}, so split the query"
            )
        self._test = _all_of(_object(body.get("query"), "query"))

    def takes(self, found: Object) -> bool:
        """True if the object fulfils the query. Raises Refused if that takes too long."""
        time = LoopTime(self._cpu_s)
        try:
            if self._used_s > _CPU_S_MAX:
                raise TooLong
            return self._test(found, time)
        except _NoSuchField:
            return False
        except TooLong as error:
            raise _malformed(
                "it takes too long; use fewer conditions or simpler regular expressions"
            ) from error
        finally:
            self._used_s += time.used_s()


def _all_of(conditions: Object) -> _Test:
    tests = [_test_of(path, condition) for path, condition in conditions.items()]
    return lambda found, time: all(test(found, time) for test in tests)


def _test_of(path: str, condition: Any) -> _Test:
    match path.lower():
        case "not":
            inner = _all_of(_object(condition, path))
            return lambda found, time: not inner(found, time)
        case "and":
            every = [_all_of(each) for each in _objects(condition, path)]
            return lambda found, time: all(test(found, time) for test in every)
        case "or":
            some = [_all_of(each) for each in _objects(condition, path)]
            return lambda found, time: any(test(found, time) for test in some)
    names, test = path.split("."), _value_test(path, condition)
    return lambda found, time: test(_field(found, names), time)


def _field(found: Any, names: Sequence[str]) -> Any:
    for name in names:
        if not isinstance(found, Mapping) or name not in found:
            raise _NoSuchField
        found = found[name]
    return found


def _value_test(path: str, condition: Any) -> _ValueTest:
    operator, wanted = "eq", condition
    if isinstance(condition, Mapping):
        if len(condition) != 1:
            raise _malformed(f"{path} must have one operator, it has {len(condition)}")
        ((operator, wanted),) = condition.items()
    match operator.lower():
        case "eq":
            return lambda value, _: _equal(value, wanted)
        case "ne":
            return lambda value, _: not _equal(value, wanted)
        case "in":
            if not isinstance(wanted, list):
                raise _malformed(f"{path}.in must be a list")
            return lambda value, _: any(_equal(value, each) for each in wanted)
        case "like":
            pattern = _pattern(path, wanted)
            return lambda value, time: value is not None and pattern.matches(_text(value), time)
        case "gt" | "lt" as order:
            limit = _number(wanted)
            if limit is None:
                raise Refused(f"query: {path}.{order} must be a number", ErrorCode.OTHER, 400)
            return lambda value, _: _is_beyond(value, limit, order)
    raise _malformed(f"{path}: '{operator}' is not an operator; use eq, ne, in, like, gt or lt")


def _pattern(path: str, wanted: Any) -> Pattern:
    if not isinstance(wanted, str):
        raise _malformed(f"{path}.like must be a string")
    if not is_for_loop(wanted):
        raise _malformed(
            f"{path}.like is too large a regular expression; repetitions count, and the maximum "
            f"is {LOOP_SIZE_MAX} characters"
        )
    try:
        return Pattern(wanted)
    except FilterInvalid as error:
        raise _malformed(f"{path}.like {error.reason}") from error


def _equal(value: Any, wanted: Any) -> bool:
    """Equal as values or as text, as in Hermes: 5 equals "5". Null equals nothing."""
    if value is None or wanted is None:
        return False
    return bool(value == wanted or _text(value) == _text(wanted))


def _is_beyond(value: Any, limit: float, order: str) -> bool:
    """Compare. A value that is not a number ("unavailable") is beyond any limit, as in Hermes."""
    number = _number(value)
    return number is None or (number > limit if order == "gt" else number < limit)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _object(value: Any, name: str) -> Object:
    if not isinstance(value, Mapping):
        raise _malformed(f"{name} must be an object of conditions")
    return value


def _objects(value: Any, name: str) -> list[Object]:
    if not isinstance(value, list):
        raise _malformed(f"{name} must be a list of objects")
    return [_object(each, name) for each in value]


def _malformed(problem: str) -> Refused:
    return Refused(f"query: {problem}", ErrorCode.FORMAT_ERROR)
