"""The target that a retransmission's body asks for, or an error that says what is wrong. Pure."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.model.moments import FORMS, is_of_some_zone, moment_ms
from hermes_actors.model.places import explained

_WAYS = ("retransmissionDate", "offsets", "to")
_END_MS = 2**53


class Moment(Struct, frozen=True):
    """At the first record that is not older, in all datacentres; `is_end`: behind the last one."""

    time_ms: int
    is_end: bool = False


class Offsets(Struct, frozen=True):
    """For each datacentre named and each partition named an offset; the others stay."""

    by_dc: dict[str, dict[int, int]]


Target = Moment | Offsets

_Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_decode_offsets = partial(msgspec.convert, type=dict[str, dict[int, _Offset]], str_keys=True)


def target_of(body: Mapping[str, Any], now_ms: int) -> Target:
    """Where a retransmission goes that is asked for at `now_ms`. Raises Refused: 400."""
    given = [way for way in _WAYS if body.get(way) is not None]
    if len(given) != 1:
        found = f"it has {' and '.join(given)}" if given else "it has none of them"
        raise Refused(
            'The body needs one of {"retransmissionDate": "2030-01-31T12:00:00Z"}, '
            '{"to": "start"}, {"to": "end"} and {"offsets": {datacentre: {partition: offset}}}; '
            f"{found}"
        )
    (way,) = given
    if way == "retransmissionDate":
        return _at(body[way], now_ms)
    return _to(body[way]) if way == "to" else _offsets(body[way])


def _at(date: object, now_ms: int) -> Moment:
    example = "2030-01-31T12:00:00Z"
    if not isinstance(date, str):
        raise Refused(f"retransmissionDate must be a string: {FORMS}", ErrorCode.FORMAT_ERROR)
    try:
        time_ms = moment_ms(date, now_ms)
    except ValueError as error:
        raise Refused(
            f"retransmissionDate '{date}' is not {FORMS}", ErrorCode.FORMAT_ERROR
        ) from error
    if is_of_some_zone(date):
        raise Refused(
            f"retransmissionDate '{date}' says no zone, so it could be any of 24 hours; give "
            f"one with its zone, such as {example}",
            ErrorCode.FORMAT_ERROR,
        )
    return Moment(time_ms)


def _to(where: object) -> Moment:
    if where == "start":
        return Moment(0)
    if where == "end":
        return Moment(_END_MS, is_end=True)
    raise Refused(f'to \'{where}\' is neither "start" nor "end"', ErrorCode.FORMAT_ERROR)


def _offsets(value: object) -> Offsets:
    try:
        by_dc = _decode_offsets(value)
    except msgspec.ValidationError as error:
        path, problem = explained(value, _decode_offsets, error)
        raise Refused(
            f'offsets{path}: {problem}; offsets are like {{"dc1": {{"0": 4200}}}}, 0 and above',
            ErrorCode.FORMAT_ERROR,
        ) from error
    if not any(by_dc.values()):
        raise Refused("offsets names no partition, so nothing would be moved")
    return Offsets({dc: at for dc, at in by_dc.items() if at})
