"""What a node's sender is handed is told, as long as the node lives."""

from hermes_actors.consumer.senders.sender import (
    Done,
    Origin,
    Push,
    PushRoute,
    Sender,
    SendOutcome,
)
from hermes_chaos.sim.environment.watched_sender import WatchedSender
from hermes_chaos.sim.history.events import Attempted, Event, History

PUSH = Push(
    PushRoute("g.t$s", Origin("http", "h.test", 80), "/", b""),
    b"Hermes-Message-Id: id1\r\nHermes-Retry-Count: 0\r\n",
    b"",
    1_000,
)


class Handed(Sender):
    """Answers nothing."""

    def __init__(self) -> None:
        self.pushes: list[Push] = []

    def send(self, push: Push, done: Done) -> None:
        self.pushes.append(push)


async def test_a_dead_node_hands_nothing_to_its_subscribers() -> None:
    """What was asleep is woken to die, and takes a step first."""
    told: list[Event] = []
    history, handed, outcomes = History(), Handed(), list[SendOutcome]()
    history.watchers.append(told.append)
    sender = WatchedSender(handed, "dc1-n1#1", history)
    sender.send(PUSH, outcomes.append)
    assert [type(each) for each in told] == [Attempted]
    sender.die()
    sender.send(PUSH, outcomes.append)
    assert (len(told), handed.pushes, outcomes) == (1, [PUSH], [])
