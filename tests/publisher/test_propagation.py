"""Only what is allowed travels, and secrets never by accident."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.model.message import Message, from_record, to_record
from hermes_actors.publisher.demands import propagated
from tests.values import stored

tokens = st.text(alphabet="aAbBxX-", min_size=1, max_size=4)
values = st.text(alphabet=[chr(code) for code in (*range(0x20, 0x7F), *range(0xA0, 0x100))])
pairs = st.lists(st.tuples(tokens, values), max_size=10)


def picked(allowed: list[str], *pairs: tuple[str, str]) -> dict[str, str]:
    return dict(propagated(pairs, allowed))


def test_without_names_all_travel_but_secrets() -> None:
    headers = (("Host", "x"), ("Authorization", "Bearer s"), ("cookie", "s"), ("A", "1"))
    assert picked([], *headers, ("Proxy-Authorization", "s")) == {"Host": "x", "A": "1"}


RESERVED = ["Hermes-Message-Id", "hermes-sequence", "HERMES-ANYTHING", "Webhook-Id", "messageid"]
RESERVED += ["webhook-signature", "WEBHOOK-TIMESTAMP"]


@pytest.mark.parametrize("name", RESERVED)
def test_a_name_by_which_the_broker_speaks_never_travels(name: str) -> None:
    assert picked([], (name, "forged"), ("A", "1")) == {"A": "1"}
    assert picked([name.lower(), "a"], (name, "forged"), ("A", "1")) == {"A": "1"}


def test_a_value_in_utf8_stays_what_it_is() -> None:
    assert picked([], ("City", "Z\xfcrich".encode().decode("latin-1"))) == {"City": "Z\xfcrich"}
    assert picked([], ("City", "Z\xfcrich")) == {"City": "Z\xfcrich"}


@given(pairs, st.lists(tokens.map(str.lower), max_size=3))
def test_what_is_picked_was_sent_is_allowed_and_survives_the_log(
    sent: list[tuple[str, str]], allowed: list[str]
) -> None:
    found = propagated(sent, allowed)
    names = [name.lower() for name, _ in found]
    assert len(set(names)) == len(names)
    for name, value in found:
        assert value
        assert name in [each for each, _ in sent]
        assert not allowed or name.lower() in allowed
    for name, value in sent:
        assert not value or (allowed and name.lower() not in allowed) or name.lower() in names
    message = Message("id", b"", 1, propagated=found, dc="dc1")
    assert from_record(stored(to_record(message))).propagated == found
