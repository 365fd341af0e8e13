"""The window of keys against a model of it, and the header's grammar."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hermes_actors.errors import Refused, Unavailable
from hermes_actors.publisher.idempotency import KeyClaim, KeyWindow, parse_key

keys = st.sampled_from(["a", "b", "c", "d", "e"])
topics = st.sampled_from(["shop.x", "shop.y"])
bodies = st.sampled_from([b"", b"1", b"2"])
WINDOW_S = 10.0


class WindowAgainstModel(RuleBasedStateMachine):
    """The model: a list of answered keys in order, and a dict of those under way."""

    @initialize(keys_max=st.integers(1, 6))
    def begin(self, keys_max: int) -> None:
        self.now_s = 0.0
        self.keys_max = keys_max
        self.window = KeyWindow(keys_max, WINDOW_S)
        self.under_way: dict[tuple[str, str], tuple[KeyClaim, bytes]] = {}
        self.answered: list[tuple[tuple[str, str], bytes, int, float]] = []

    @rule(pause_s=st.floats(0, 12))
    def wait(self, pause_s: float) -> None:
        self.now_s += pause_s

    @rule(topic=topics, key=keys, body=bodies)
    def publish(self, topic: str, key: str, body: bytes) -> None:
        name = (topic, key)
        self.answered = [each for each in self.answered if self.now_s < each[3] + WINDOW_S]
        if name in self.under_way:
            with pytest.raises(Refused) as caught:
                self.window.claim(topic, key, self.now_s)
            assert caught.value.status == 409
            return
        known = next((each for each in self.answered if each[0] == name), None)
        if known is None and len(self.under_way) >= self.keys_max:
            with pytest.raises(Unavailable):
                self.window.claim(topic, key, self.now_s)
            return
        claim = self.window.claim(topic, key, self.now_s)
        if known is None:
            while len(self.under_way) + len(self.answered) >= self.keys_max:
                self.answered.pop(0)
            assert claim.match(None, body) == 0
            self.under_way[name] = (claim, body)
        elif known[1] == body:
            assert claim.match(None, body) == known[2]
            claim.conclude(known[2], self.now_s)
        else:
            with pytest.raises(Refused) as caught:
                claim.match(None, body)
            assert caught.value.status == 422
            claim.conclude(422, self.now_s)

    @rule(data=st.data(), status=st.sampled_from([0, 201, 202, 400, 408, 429, 500, 503]))
    def answer(self, data: st.DataObject, status: int) -> None:
        if not self.under_way:
            return
        name = data.draw(st.sampled_from(sorted(self.under_way)))
        claim, body = self.under_way.pop(name)
        claim.conclude(status, self.now_s)
        # A second word changes nothing.
        claim.conclude(201, self.now_s)
        if status in (201, 202):
            self.answered.append((name, body, status, self.now_s))

    @invariant()
    def it_is_bounded(self) -> None:
        if hasattr(self, "window"):
            assert len(self.window) <= self.keys_max


TestWindowAgainstModel = WindowAgainstModel.TestCase


@given(st.text(alphabet=[chr(c) for c in range(0x20, 0x7F)], min_size=1, max_size=255))
def test_any_text_of_printable_ascii_is_a_key_when_quoted(key: str) -> None:
    quoted = '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert parse_key(quoted) == key
    assert parse_key(f" {quoted};expires=3 ") == key


def test_a_key_is_the_same_with_and_without_quotes() -> None:
    assert parse_key("8e03978e-40d5/43dd:1") == parse_key('"8e03978e-40d5/43dd:1"')


@pytest.mark.parametrize(
    "value",
    [
        *("", '""', '"', '"a', 'a"b', "a b", "a,b", '"a","b"', "a;b", "a\x7f"),
        *("k\xf6nig", '"k\xf6nig"', "a\\b", '"a\\b"'),
        *("x" * 256, '"' + "x" * 256 + '"'),
    ],
)
def test_what_is_no_key_is_refused_by_name(value: str) -> None:
    with pytest.raises(Refused, match="Idempotency-Key") as caught:
        parse_key(value)
    assert caught.value.status == 400


def test_another_partition_key_is_another_payload() -> None:
    window = KeyWindow(10, WINDOW_S)
    first = window.claim("shop.x", "k", 0.0)
    assert first.match(b"1", b"2|3") == 0
    first.conclude(201, 0.0)
    assert window.claim("shop.x", "k", 1.0).match(b"1", b"2|3") == 201
    for partition_key, body in ((None, b"2|3"), (b"", b"2|3"), (b"2", b"2|3"), (b"1|2", b"3")):
        with pytest.raises(Refused, match="another message"):
            window.claim("shop.x", "k", 1.0).match(partition_key, body)
