"""W3C Trace Context: the parts of `traceparent` and `tracestate` that are forwarded. Pure."""

import re

TRACESTATE_CHARACTERS_MAX = 512
TRACESTATE_MEMBERS_MAX = 32

# 3.2: invalid values are ignored, as the recommendation asks. A later version may have more after
# the flags, and is read like the first one.
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?"
)
_TRACEPARENT_CHARACTERS_MAX = 128
_FIRST_VERSION = "00-"
_FIRST_VERSION_CHARACTERS = 55
# 3.3.1: a member is a key and a value of printable ASCII without comma and equals sign.
_MEMBER = re.compile(
    r"([a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    r"=[ -+\--<>-~]{0,255}[!-+\--<>-~]"
)


class TraceContext:
    """The trace context of a message: its `traceparent` and `tracestate`; the latter may be
    empty.
    """

    __slots__ = ("traceparent", "tracestate")

    def __init__(self, traceparent: str, tracestate: str = "") -> None:
        self.traceparent = traceparent
        self.tracestate = tracestate


def is_traceparent(text: str) -> bool:
    """True for a valid `traceparent` header, which names a trace and a span."""
    if len(text) > _TRACEPARENT_CHARACTERS_MAX or _TRACEPARENT.fullmatch(text) is None:
        return False
    return len(text) == _FIRST_VERSION_CHARACTERS or not text.startswith(_FIRST_VERSION)


def clean_tracestate(text: str) -> str:
    """The `tracestate` header to forward. Empty string if it is too long or not well formed."""
    if not text or len(text) > TRACESTATE_CHARACTERS_MAX:
        return ""
    members = [each for raw in text.split(",") if (each := raw.strip(" \t"))]
    if len(members) > TRACESTATE_MEMBERS_MAX:
        return ""
    if not all(_MEMBER.fullmatch(each) for each in members):
        return ""
    keys = {each.partition("=")[0] for each in members}
    return ",".join(members) if len(keys) == len(members) else ""


def is_sampled(traceparent: str) -> bool:
    """True if the sender of this `traceparent` records the trace; False for an empty string."""
    # The flags are the two digits after the third dash; their last bit means sampled.
    return traceparent[54:55] in _ODD


def trace_ids(traceparent: str) -> dict[str, str]:
    """Return the `extra` of a log line about one message: the ids of its trace, if it has one."""
    if not is_traceparent(traceparent):
        return {}
    return {"trace_id": traceparent[3:35], "span_id": traceparent[36:52]}


_ODD = frozenset("13579bdf")
