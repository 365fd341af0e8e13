"""Variables are put into a compose file as Compose does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_local.interpolation import ComposeWrong, interpolate, interpolated


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a $A b", "a 1 b"),
        ("${A}${A}", "11"),
        ("${A:-2}", "1"),
        ("${NONE:-2}", "2"),
        ("${NONE-2}", "2"),
        ("${EMPTY:-2}", "2"),
        ("${EMPTY-2}", ""),
        ("${A:+2}", "2"),
        ("${EMPTY:+2}", ""),
        ("${EMPTY+2}", "2"),
        ("${NONE+2}", ""),
        ("${A:?needed}", "1"),
        ("${NONE:-${A:-3}}", "1"),
        ("${NONE:-x${NONE:-y}z}", "xyz"),
        ("${A:-${NONE}}", "1"),
        ("$$A $${A}", "$A ${A}"),
        ("a}b", "a}b"),
    ],
)
def test_variables_are_put_in_as_compose_does(text, expected):
    assert interpolate(text, {"A": "1", "EMPTY": ""}, "here") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("$NONE", "here: the variable NONE is not set"),
        ("${NONE}", "here: the variable NONE is not set"),
        ("${NONE:?set it to x}", "NONE is needed: set it to x"),
        ("${EMPTY:?}", "EMPTY is needed"),
        ("${A", "not understood|closing"),
        ("${A:-b", "no closing brace"),
        ("${A!b}", "not understood"),
        ("${}", "names no variable"),
        ("5 $", "lone"),
    ],
)
def test_a_variable_that_is_not_there_is_an_error_that_names_it(text, message):
    with pytest.raises(ComposeWrong, match=message):
        interpolate(text, {"A": "1", "EMPTY": ""}, "here")


@given(st.text())
def test_any_text_goes_through_when_its_dollars_are_doubled(text):
    assert interpolate(text.replace("$", "$$"), {}, "here") == text


def test_variables_are_put_into_values_at_any_depth_but_not_into_keys():
    tree = {"a": {"$K": "${I}", "ports": ["${P:-1}:2", 3, None]}}
    assert interpolated(tree, {"I": "x"}, "") == {"a": {"$K": "x", "ports": ["1:2", 3, None]}}
    with pytest.raises(ComposeWrong, match=r"a\.ports\[1\]: the variable Q"):
        interpolated({"a": {"ports": ["1", "${Q}"]}}, {}, "")
