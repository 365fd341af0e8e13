"""What the fail-over benchmark says of gaps, moves, losses and duplicates is what came."""

import os
import socket
from array import array

from delivering.peers import processes_of
from delivering.sink import Arrivals
from failing_over.ledger import ANYBODY, Lane, Ledger
from hermes_chaos.live.open_loop import Sent

A, B = 0, 1
FIRST, SECOND = Lane("s", "key-0"), Lane("s", "key-1")


def sent(*due_s: float, status: int = 201) -> list[Sent]:
    """Messages due then, alternating over two keys."""
    return [
        Sent(number, "g.t", f"key-{(number - 1) % 2}", at_s, status=status)
        for number, at_s in enumerate(due_s, start=1)
    ]


def arrivals(*came: tuple[int, float, int]) -> dict[str, Arrivals]:
    """Of number, time and sender."""
    numbers, at_s, senders = zip(*came, strict=True)
    due = array("d", [0.0] * len(came))
    return {"s": Arrivals(array("q", numbers), due, array("d", at_s), array("h", senders))}


def ledger(messages: list[Sent], *came: tuple[int, float, int]) -> Ledger:
    made = Ledger({"s": "g.t"}, messages, shift_s=0.0)
    if came:
        made.take(arrivals(*came))
    return made


def test_a_lost_nodes_lanes_are_taken_over_when_another_node_first_delivers_on_them() -> None:
    made = ledger(
        sent(1, 2, 3, 4, 5, 6), (1, 1.1, A), (2, 2.1, B), (3, 3.2, A), (4, 6.5, B), (5, 7.0, B)
    )
    assert made.lanes_of(A, at_s=3.1) == [FIRST]
    # What the lost node still had on the wire is no take-over.
    assert made.taken_over_s([FIRST], A, at_s=3.1) == {FIRST: 7.0 - 3.1}
    assert made.taken_over_s([SECOND], B, at_s=3.1) == {}


def test_the_longest_wait_of_a_lane_is_that_of_a_first_delivery() -> None:
    made = ledger(sent(1, 2, 3), (1, 1.5, A), (2, 2.1, A), (1, 9.0, B), (3, 3.25, B))
    assert made.waited_s([FIRST, SECOND], 0.0, 10.0) == {FIRST: 0.5, SECOND: 2.1 - 2}
    assert made.waited_s([FIRST], 2.5, 10.0) == {FIRST: 0.25}


def test_each_change_of_the_sender_is_a_move_and_a_missed_message_is_none() -> None:
    made = ledger(
        sent(1, 2, 3, 4, 5, 6, 7), (1, 1.1, A), (3, 3.1, B), (5, 5.1, A), (7, 7.1, A), (2, 8.0, B)
    )
    assert made.moves(0.0, 10.0) == {FIRST: 2, SECOND: 0}
    assert made.moves(4.0, 10.0) == {FIRST: 1, SECOND: 0}


def test_a_sender_that_is_not_known_is_neither_a_move_nor_a_take_over() -> None:
    made = ledger(sent(1, 2, 3, 4, 5), (1, 1.1, A), (3, 3.1, ANYBODY), (5, 5.1, A))
    assert made.moves(0.0, 10.0) == {FIRST: 0}
    assert made.taken_over_s([FIRST], A, at_s=2.0) == {}
    assert made.resumed_s([FIRST], 2.0) == {FIRST: 3.1 - 2.0}


def test_missing_is_what_was_accepted_and_has_not_come() -> None:
    messages = sent(1, 2, 3)
    messages[1].status = 503
    assert ledger(messages, (1, 1.1, A)).missing() == [("s", 3)]
    messages[1].status = 202
    assert ledger(messages, (3, 1.1, A)).missing() == [("s", 1), ("s", 2)]


def test_a_message_that_comes_again_is_a_duplicate_whoever_sends_it() -> None:
    made = ledger(sent(1, 2), (1, 1.1, A), (1, 1.2, B), (2, 2.1, A), (1, 3.0, A))
    assert made.duplicates == 2
    assert made.missing() == []


def test_silence_is_the_longest_time_without_any_delivery() -> None:
    made = ledger(sent(1, 2, 3), (1, 1.0, A), (2, 4.0, B), (3, 5.0, A))
    assert made.silent_s(0.5, 6.0) == 3.0
    assert made.silent_s(4.5, 9.0) == 4.0
    assert made.resumed_s([FIRST, SECOND], 3.5) == {FIRST: 1.5, SECOND: 0.5}


def test_a_probe_of_a_topic_counts_as_nothing() -> None:
    made = ledger(sent(1), (-1, 0.5, A), (1, 1.1, A))
    assert made.duplicates == 0
    assert made.owners(0.9) == {}


def test_the_process_behind_a_connection_is_found_by_both_its_ports() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        to = listening.getsockname()[1]
        with socket.create_connection(("127.0.0.1", to)) as opened:
            port = opened.getsockname()[1]
            assert processes_of([port, 1], to, [os.getpid(), 1 << 30]) == {port: os.getpid()}
            assert processes_of([port], 1, [os.getpid()]) == {}
        assert processes_of([port], to, [os.getpid()]) == {}
