"""Reads Avro's logical types from plain JSON: times in ISO 8601, and exact decimals."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact
from typing import Any

_DECIMAL = re.compile(r"[+-]?[0-9]{1,200}(\.[0-9]{0,200})?([eE][+-]?[0-9]{1,3})?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DIGITS_MAX = 1_000

Read = Callable[[Any], Any]
"""Converts a JSON value; None leaves it to the plain type. Raises ValueError, ArithmeticError."""


def _text(parse: Callable[[str], int], words: str) -> Callable[[dict[str, Any]], Read]:
    def read(value: Any) -> int | None:
        if type(value) is not str:
            return None
        try:
            return parse(value)
        except ValueError as error:
            raise ValueError(words) from error

    return lambda _kind: read


_date = _text(
    lambda text: date.fromisoformat(text).toordinal() - _EPOCH_DAY,
    "a date is written as 2026-11-22",
)


def _time(units_a_second: int) -> Callable[[dict[str, Any]], Read]:
    def parse(text: str) -> int:
        since = datetime.combine(_EPOCH, time.fromisoformat(text), UTC) - _EPOCH
        return _units(since, units_a_second)

    return _text(parse, "a time is written as 12:34:56.789")


def _timestamp(units_a_second: int) -> Callable[[dict[str, Any]], Read]:
    def parse(text: str) -> int:
        found = datetime.fromisoformat(text)
        since = (found if found.tzinfo else found.replace(tzinfo=UTC)) - _EPOCH
        return _units(since, units_a_second)

    return _text(parse, "a moment is written as 2026-11-22T12:34:56.789Z")


def _units(since: timedelta, units_a_second: int) -> int:
    return since // timedelta(microseconds=1_000_000 // units_a_second)


def _decimal(kind: dict[str, Any]) -> Read:
    scale, precision = kind.get("scale", 0), kind.get("precision", 0)
    if type(scale) is not int or not 0 <= scale <= _DIGITS_MAX:
        return _nothing
    if type(precision) is not int or not 0 < precision <= _DIGITS_MAX:
        return _nothing
    exact = Context(prec=2 * _DIGITS_MAX, traps=[Inexact])
    unit = Decimal(1).scaleb(-scale)

    def read(value: Any) -> bytes:
        text = value if type(value) is str else repr(value)
        if type(value) not in (str, int, float) or _DECIMAL.fullmatch(text) is None:
            raise ValueError("a decimal is a number, or a text such as 12.34")
        try:
            number = Decimal(text).quantize(unit, context=exact)
        except ArithmeticError as error:
            raise ValueError(f"the decimal has more than {scale} digits after the point") from error
        unscaled = int(number.scaleb(scale, context=exact))
        if len(str(abs(unscaled))) > precision:
            raise ValueError(f"the decimal has more than {precision} digits")
        size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
        return unscaled.to_bytes(size, "big", signed=True)

    return read


def _nothing(_value: Any) -> None:
    """Leave the value to the plain type, because the logical type's description is invalid."""


LOGICAL_READS: dict[tuple[str, str | None], Callable[[dict[str, Any]], Read]] = {
    ("int", "date"): _date,
    ("int", "time-millis"): _time(1_000),
    ("long", "time-micros"): _time(1_000_000),
    ("long", "timestamp-millis"): _timestamp(1_000),
    ("long", "timestamp-micros"): _timestamp(1_000_000),
    ("long", "local-timestamp-millis"): _timestamp(1_000),
    ("long", "local-timestamp-micros"): _timestamp(1_000_000),
    ("bytes", "decimal"): _decimal,
}
"""The supported logical types, by underlying type and name."""
