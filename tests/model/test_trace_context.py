"""What of a trace context is carried on, whatever was sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.model.trace_context import (
    TRACESTATE_CHARACTERS_MAX,
    clean_tracestate,
    is_sampled,
    is_traceparent,
)

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"cc-{TRACE}-{SPAN}-01-{'x' * 10_000}",
        f"cc-{TRACE}-{SPAN}-01-\x00",
        f"00-{TRACE}-{SPAN}-0\u0661",
    ],
)
def test_anything_else_makes_none(text: str) -> None:
    assert not is_traceparent(text)


@pytest.mark.parametrize(("flags", "expected"), [("01", True), ("00", False), ("03", True)])
def test_the_last_flag_says_whether_it_is_recorded(flags: str, expected: bool) -> None:
    assert is_sampled(f"00-{TRACE}-{SPAN}-{flags}") is expected
    assert not is_sampled("")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("congo=t61rcWkgMzE,rojo=00f067", "congo=t61rcWkgMzE,rojo=00f067"),
        (" a=1 ,\tb=2,,", "a=1,b=2"),
        ("tenant@vendor=a b", "tenant@vendor=a b"),
        ("A=1", ""),
        ("a", ""),
        ("a=", ""),
        ("a=1,a=2", ""),
        ("a=\x00", ""),
        ("a=ä", ""),
        ("a=1\r\nSet-Cookie: x", ""),
        (",".join(f"a{n}=1" for n in range(33)), ""),
        ("a=" + "x" * TRACESTATE_CHARACTERS_MAX, ""),
    ],
)
def test_a_tracestate_is_carried_whole_or_not_at_all(text: str, expected: str) -> None:
    assert clean_tracestate(text) == expected


@given(st.text(alphabet="ab=, \t@*/-\x00\xff~", max_size=600))
def test_a_carried_tracestate_is_printable_short_and_stays_as_it_is(text: str) -> None:
    clean = clean_tracestate(text)
    assert len(clean) <= TRACESTATE_CHARACTERS_MAX
    assert clean.isascii()
    assert clean.isprintable()
    assert clean_tracestate(clean) == clean
