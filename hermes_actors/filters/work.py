"""Filter jobs for the worker pool: functions of plain values."""

from functools import lru_cache

import msgspec
from msgspec import Struct

from hermes_actors.filters.compiled import TYPES, Candidate, Filters, compile_filter
from hermes_actors.filters.failures import FilterFailed, FilterInvalid, NotJson
from hermes_actors.model.message import Headers
from hermes_actors.model.subscription import Filter

COMPILE_CPU_S = 0.1
MESSAGE_CPU_S = 0.25
"""Maximum CPU time for all filters of one message, including compiling them."""

_compiled = lru_cache(64)(Filters)


class Verdict(Struct, frozen=True):
    """The filters' decision on a message: the type of the filter that rejects it (empty string if
    it passes), or why they could not decide.
    """

    rejected_by: str = ""
    failure: str = ""
    is_json: bool = True


def verdict(wanted: tuple[Filter, ...], body: bytes, propagated: Headers, is_avro: bool) -> Verdict:
    """Apply filters to a message. An Avro message is given as the JSON that filters see."""
    candidate = Candidate(body, propagated, msgspec.json.decode if is_avro else None)
    try:
        return Verdict(_compiled(wanted).rejects(candidate))
    except NotJson as error:
        return Verdict(failure=str(error), is_json=False)
    except (FilterFailed, FilterInvalid) as error:
        return Verdict(failure=str(error))


def problems(wanted: tuple[Filter, ...]) -> tuple[str, ...]:
    """Return each filter's errors, as `filters[0].path must …`; filters of unknown types are
    skipped.
    """
    found = []
    for index, each in enumerate(wanted):
        try:
            if each.type in TYPES:
                compile_filter(each)
        except FilterInvalid as error:
            found.append(f"filters[{index}].{error}")
    return tuple(found)
