import itertools

from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.consumer.senders.httpx.frames import (
    FRAMES_BURST,
    FRAMES_OF_A_REQUEST,
    UNASKED_BURST,
    UNASKED_PER_S,
    FrameBudget,
    FrameWalk,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PING, HEADERS, DATA, WINDOW = 6, 1, 0, 8


def frame(kind, stream_id=0, payload=b""):
    return (
        len(payload).to_bytes(3, "big") + bytes([kind, 0]) + stream_id.to_bytes(4, "big") + payload
    )


FRAMES = st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40)), max_size=20)


@given(FRAMES, st.lists(st.integers(0, 400), max_size=20))
def test_frames_are_found_however_the_stream_is_cut(frames, cuts):
    data = b"".join(frame(kind, 1, payload) for kind, payload in frames)
    at = [0, *sorted(min(each, len(data)) for each in cuts), len(data)]
    walk = FrameWalk()
    pieces = [walk.kinds(data[a:b]) for a, b in itertools.pairwise(at)]
    assert [kind for piece in pieces for kind in piece] == [kind for kind, _ in frames]


def test_pings_are_bounded_in_each_second_whatever_is_answered():
    budget = FrameBudget(0.0, 65_536)
    now_s, count = 0.0, 0
    while budget.on_received(frame(PING), now_s):
        count += 1
        budget.to_send(frame(PING))
        now_s += 1e-4
    assert UNASKED_BURST <= count <= UNASKED_BURST + UNASKED_PER_S * now_s
    # One each second is nobody's harm.
    calm = FrameBudget(0.0, 65_536)
    assert all(calm.on_received(frame(PING), float(second)) for second in range(10_000))


def test_who_is_pushed_much_may_answer_much():
    budget, now_s = FrameBudget(0.0, 65_536), 0.0
    for stream_id in range(1, 40_000, 2):
        now_s += 1e-4
        budget.to_send(frame(HEADERS, stream_id, b"h") + frame(DATA, stream_id, b"d"))
        answer = frame(WINDOW) + frame(HEADERS, stream_id) + frame(DATA, stream_id)
        assert budget.on_received(answer * int(FRAMES_OF_A_REQUEST / 3), now_s)
    flood, count = frame(WINDOW), 0
    while budget.on_received(flood, now_s):
        count += 1
    assert count <= FRAMES_BURST


def test_only_streams_windows_are_made_smaller():
    budget = FrameBudget(0.0, 1_000)
    huge = (1 << 24).to_bytes(4, "big")
    first = PREFACE + frame(4, 0, b"\0\2\0\0\0\0") + frame(WINDOW, 0, huge)
    assert budget.to_send(first) == first
    head = frame(HEADERS, 1, b"h" * 50)
    assert budget.to_send(head + frame(WINDOW, 1, huge)) == head + frame(
        WINDOW, 1, (1_000).to_bytes(4, "big")
    )
    small = frame(WINDOW, 1, (7).to_bytes(4, "big")) + frame(DATA, 1, b"x")
    assert budget.to_send(small) == small
