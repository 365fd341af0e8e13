"""What the decoder found wrong is told by the client's own keys and indexes."""

from enum import StrEnum
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from hermes_actors.model.places import explained, words_at


class Part(Struct):
    """A value of a map."""

    size: int = 0


NESTED = dict[str, dict[str, list[Part]]]


def decode(value: object) -> object:
    return msgspec.convert(value, NESTED, strict=False)


sound = st.dictionaries(
    st.text("ab", max_size=3),
    st.dictionaries(
        st.text("cd", max_size=3), st.lists(st.just({"size": 1}), max_size=2), max_size=4
    ),
    max_size=5,
)


@given(sound, sound, st.integers(0, 2), st.booleans())
def test_the_first_part_that_is_wrong_is_named_beside_any_others(
    before: dict[str, Any], after: dict[str, Any], index: int, is_alike: bool
) -> None:
    wrong = [*({"size": 1} for _ in range(index)), {"size": "x"}]
    beside: dict[str, Any] = {"y": wrong} if is_alike else {"y": []}
    value: dict[str, Any] = {
        **before,
        "X": {"c": [], "x": wrong, **beside},
        **after,
        "Z": {"x": wrong},
    }
    with pytest.raises(msgspec.ValidationError) as found:
        decode(value)
    path, problem = explained(value, decode, found.value)
    assert (path, problem) == (f"[X][x][{index}].size", "Expected `int`, got `str`")


class Colour(StrEnum):
    """Words that a field may hold."""

    RED = "red"
    BLUE = "blue"


class Painted(Struct, rename="camel"):
    """Holds them in several ways."""

    first_colour: Colour | None = None
    by_name: dict[str, list[Colour]] = {}
    width: int = 0


@pytest.mark.parametrize("path", [".firstColour", ".byName[a.b][0]"])
def test_the_words_that_a_place_may_hold_are_found(path: str) -> None:
    assert words_at(Painted, path) == ["red", "blue"]


@pytest.mark.parametrize("path", ["", ".width", ".byName", ".byName[a]", ".none", ".width.x"])
def test_a_place_that_holds_other_things_has_no_words(path: str) -> None:
    assert words_at(Painted, path) == []
