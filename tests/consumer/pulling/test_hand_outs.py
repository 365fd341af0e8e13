"""The table of messages that clients have, against a plain dictionary."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.consumer.pulling.hand_outs import HandOuts
from hermes_actors.model.pulling import RefusedAck

STEPS = st.lists(
    st.tuples(
        st.sampled_from(("add", "remove", "extend", "pass")),
        st.floats(0, 50, allow_nan=False),
        st.integers(0, 30),
    ),
    max_size=60,
)


@given(STEPS)
def test_each_message_is_overdue_once_at_its_latest_deadline_and_found_until_then(steps):
    outs, model, now_s = HandOuts(3, "0" * 16), {}, 100.0
    for offset, (act, by_s, which) in enumerate(steps):
        if act == "add":
            record = SimpleNamespace(partition=1, offset=offset)
            out = outs.add(SimpleNamespace(record=record), now_s + by_s)
            model[str(out.ack_id)] = now_s + by_s
        elif act == "pass":
            now_s += by_s
            late = []
            while found := outs.overdue(now_s, 3):
                assert len(found) <= 3
                late += found
            for each in late:
                assert model.pop(str(each.ack_id)) <= now_s
        elif model:
            chosen = sorted(model)[which % len(model)]
            out = outs.find(chosen)
            assert str(out.ack_id) == chosen
            if act == "remove":
                outs.remove(out)
                del model[chosen]
                assert isinstance(outs.find(chosen), RefusedAck)
            else:
                outs.extend(out, now_s + by_s)
                model[chosen] = now_s + by_s
        assert outs.next_s == min(model.values(), default=float("inf"))


def test_messages_that_are_settled_at_once_leave_nothing_behind():
    outs = HandOuts(1, "0" * 16)
    for number in range(10_000):
        record = SimpleNamespace(partition=0, offset=number)
        outs.remove(outs.add(SimpleNamespace(record=record), 30.0 + number))
    assert len(outs._deadlines) <= 101
