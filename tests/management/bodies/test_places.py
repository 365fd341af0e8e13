"""What the decoder found wrong is told by the client's own keys and indexes."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from hermes_actors.errors import Refused
from hermes_actors.management.bodies.decoding import decode_topic
from hermes_actors.management.bodies.places import explained
from hermes_chaos.wanted import topic_body


class Part(Struct):
    """A value of a map."""

    size: int = 0


NESTED = dict[str, dict[str, list[Part]]]


def decode(value):
    return msgspec.convert(value, NESTED, strict=False)


def test_the_key_of_a_map_within_a_topic_is_named() -> None:
    policies = {"dc1": {"probability": 1}, "dc2": {"probability": "often"}}
    with pytest.raises(Refused) as refused:
        decode_topic({**topic_body("a.b"), "chaos": {"datacenterPolicies": policies}})
    assert refused.value.message == (
        "Topic.chaos.datacenterPolicies[dc2].probability: Expected `int`, got `str`"
    )


sound = st.dictionaries(
    st.text("ab", max_size=3),
    st.dictionaries(
        st.text("cd", max_size=3), st.lists(st.just({"size": 1}), max_size=2), max_size=4
    ),
    max_size=5,
)


@given(sound, sound, st.integers(0, 2), st.booleans())
def test_the_first_part_that_is_wrong_is_named_beside_any_others(
    before, after, index, is_alike
) -> None:
    wrong = [*({"size": 1} for _ in range(index)), {"size": "x"}]
    beside = {"y": wrong} if is_alike else {"y": []}
    value = {**before, "X": {"c": [], "x": wrong, **beside}, **after, "Z": {"x": wrong}}
    with pytest.raises(msgspec.ValidationError) as found:
        decode(value)
    path, problem = explained(value, decode, found.value)
    assert (path, problem) == (f"[X][x][{index}].size", "Expected `int`, got `str`")
