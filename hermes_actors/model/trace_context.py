"""W3C Trace Context: what of a request's `traceparent` and `tracestate` is carried on. Pure."""

import re

TRACESTATE_CHARACTERS_MAX = 512
TRACESTATE_MEMBERS_MAX = 32

# 3.2: what does not look like it is ignored, as the recommendation asks. A later version may have
# more behind the flags, and is read like the first one.
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
    """The trace that a message belongs to: the values of its `traceparent`, and of its `tracestate`
    or "".
    """

    __slots__ = ("traceparent", "tracestate")

    def __init__(self, traceparent: str, tracestate: str = "") -> None:
        self.traceparent = traceparent
        self.tracestate = tracestate


def is_traceparent(text: str) -> bool:
    """True for the value of a `traceparent` header that names a trace and a span."""
    if len(text) > _TRACEPARENT_CHARACTERS_MAX or _TRACEPARENT.fullmatch(text) is None:
        return False
    return len(text) == _FIRST_VERSION_CHARACTERS or not text.startswith(_FIRST_VERSION)


def clean_tracestate(text: str) -> str:
    """Return the value of a `tracestate` header as it is carried on; "" for one that is too long or
    not well formed, which is left out whole.
    """
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
    """True if whoever wrote this `traceparent` records the trace; False for ""."""
    # The flags are the two digits behind the third dash; the last bit of them says it.
    return traceparent[54:55] in _ODD


def trace_ids(traceparent: str) -> dict[str, str]:
    """Return the `extra` of a log line about one message: the ids of its trace, if it has one."""
    if not is_traceparent(traceparent):
        return {}
    return {"trace_id": traceparent[3:35], "span_id": traceparent[36:52]}


_ODD = frozenset("13579bdf")
