"""The gathering of previews keeps its bounds."""

from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.config import PreviewConfig
from hermes_actors.model.message import Message
from hermes_actors.status.previews import Previews

published = st.tuples(st.sampled_from(["a.x", "a.y", "a.z"]), st.integers(0, 2_000))


@given(st.lists(published, max_size=30), st.integers(1, 4), st.integers(100, 1_000))
def test_no_bound_is_passed_and_the_first_messages_are_the_ones(
    messages: list[tuple[str, int]], messages_max: int, message_bytes_max: int
) -> None:
    config = PreviewConfig(
        enabled=True,
        messages_max=messages_max,
        message_bytes_max=message_bytes_max,
        total_bytes_max=2_000,
    )
    previews = Previews(config)
    wanted = 0
    for number, (topic, size) in enumerate(messages):
        if previews.wants(topic):
            wanted += 1
            previews.add(topic, Message(f"id{number}", b"x" * size, 1))
    found = previews.take_all()
    assert sum(len(each) for each in found.values()) + previews.left_out == wanted
    assert sum(len(each.content) for all_ in found.values() for each in all_) <= 2_000
    for each in (each for all_ in found.values() for each in all_):
        assert len(each.content) <= message_bytes_max
        assert (
            each.is_truncated == (len(each.content) == message_bytes_max) or not each.is_truncated
        )
        assert each.content.startswith(b'{"_w":true,"metadata":{"timestamp":1,')
        assert each.is_truncated or each.content.endswith(b"x}") or b'"message":}' in each.content
    assert all(len(each) <= messages_max for each in found.values())
    assert previews.take_all() == {}
