import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.cli.command_line import bodies
from hermes_actors.cli.command_line.failures import UsageWrong

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text("abc", min_size=1, max_size=2), values, max_size=3)


@pytest.mark.parametrize(
    ("text", "duration", "unit"),
    [("90s", 90, "SECONDS"), ("30m", 30, "MINUTES"), ("12H", 12, "HOURS"), ("7 d", 7, "DAYS")],
)
def test_a_retention_is_a_number_and_a_unit(text, duration, unit):
    assert bodies.retention(text) == {"duration": duration, "retentionUnit": unit}


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "1.5h", "1w"])
def test_any_other_retention_is_refused_with_an_example(text):
    with pytest.raises(UsageWrong, match="like 12h or 1d"):
        bodies.retention(text)


@pytest.mark.parametrize("text", ["0s", "0d", "00h"])
def test_a_retention_that_keeps_nothing_is_refused_with_the_least(text):
    with pytest.raises(UsageWrong, match="the minimum is 1s"):
        bodies.retention(text)


def test_an_owners_id_may_hold_colons():
    assert bodies.owner("LDAP:a:b") == {"source": "LDAP", "id": "a:b"}


@pytest.mark.parametrize("text", ["", "team", ":team", "Plaintext:"])
def test_an_owner_without_source_or_id_is_refused(text):
    with pytest.raises(UsageWrong, match="source:id"):
        bodies.owner(text)


def test_pairs_nest_by_dots_and_hold_json_or_text():
    assert bodies.patch(["a.b=2", "a.c=null", "d=ALL", "e=[1]", 'f="5"', "g=x=y", "h="]) == {
        "a": {"b": 2, "c": None},
        "d": "ALL",
        "e": [1],
        "f": "5",
        "g": "x=y",
        "h": "",
    }


@pytest.mark.parametrize("pair", ["a", "=1", "a.=1", ".a=1", "a..b=1"])
def test_a_pair_without_key_or_value_is_refused(pair):
    with pytest.raises(UsageWrong, match="expected key=value"):
        bodies.patch([pair])


def test_a_key_cannot_be_a_value_and_a_parent():
    with pytest.raises(UsageWrong, match="already has a value"):
        bodies.patch(["a=1", "a.b=2"])


@given(objects, objects)
def test_merging_keeps_what_only_one_side_has_and_lets_the_later_win(under, over):
    result = bodies.merged(under, over)
    assert result.keys() == under.keys() | over.keys()
    for key, value in over.items():
        if not isinstance(value, dict) or not isinstance(under.get(key), dict):
            assert result[key] == value
    for key in under.keys() - over.keys():
        assert result[key] == under[key]


@given(objects, objects)
def test_merging_twice_changes_nothing_more(under, over):
    once = bodies.merged(under, over)
    assert bodies.merged(once, over) == once


@pytest.mark.parametrize(("text", "why"), [("[1]", "expected a JSON object"), ("nope", "not JSON")])
def test_a_file_that_is_no_object_is_refused(tmp_path, text, why):
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(UsageWrong, match=why):
        bodies.from_file(str(file))


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UsageWrong, match="cannot be read"):
        bodies.from_file(str(tmp_path / "none.json"))


def test_what_nests_too_deep_is_refused(tmp_path):
    deep = "[" * 100_000 + "]" * 100_000
    file = tmp_path / "deep.json"
    file.write_text(deep)
    with pytest.raises(UsageWrong, match="not JSON"):
        bodies.from_file(str(file))
    with pytest.raises(UsageWrong, match="too deep"):
        bodies.patch([f"a={deep}"])


def test_a_text_whose_file_is_not_there_is_refused_without_the_system_s_number():
    with pytest.raises(UsageWrong) as wrong:
        bodies.text_from_file("--schema", "/nowhere")
    assert wrong.value.message == "--schema /nowhere: cannot be read: No such file or directory"
