"""The watched sender of a node. Each push must end exactly once, and never inside `send`."""

from collections.abc import Callable
from itertools import count

import trio

from hermes_actors.consumer.senders.sender import (
    Done,
    Probed,
    Push,
    PushRoute,
    Sender,
    SendOutcome,
    parse_lines,
)
from hermes_chaos.sim.environment.subscribers import messages_of
from hermes_chaos.sim.history.events import Attempted, Ended, History


class WatchedSender(Sender):
    """Pushes through `sender`, and reports to the history; `node` names the life of the node."""

    def __init__(self, sender: Sender, node: str, history: History) -> None:
        self._sender = sender
        self._node = node
        self._history = history
        self._numbers = count(1)
        self._is_dead = False

    def die(self) -> None:
        """The node is gone. Nothing is pushed for tasks that still run at its death, or that wake
        up only to die.
        """
        self._is_dead = True

    def send(self, push: Push, done: Done) -> None:
        """As `Sender.send`. Asserts the contract of `done`."""
        if self._is_dead:
            return
        headers = {name.lower(): value for name, value in parse_lines(push.lines)}
        batch_id = headers.get(b"hermes-batch-id", b"").decode()
        sequence = headers.get(b"hermes-sequence", b"").split()
        attempt = Attempted(
            node=self._node,
            number=next(self._numbers),
            subscription=push.route.subscription,
            message_id=batch_id or headers[b"hermes-message-id"].decode(),
            retries=int(headers[b"hermes-retry-count"]),
            at_s=trio.current_time(),
            host=push.route.origin.host,
            body=push.body,
            ids=tuple(each for each, _ in messages_of(push.body)) if batch_id else (),
            sequence=(int(sequence[0]), int(sequence[2])) if sequence else None,
        )
        self._history.tell(attempt)
        has_returned = is_over = False

        def heard(outcome: SendOutcome) -> None:
            nonlocal is_over
            assert has_returned, "the outcome came from inside send"
            assert not is_over, "a push ended twice"
            is_over = True
            self._history.tell(
                Ended(attempt, outcome.status, outcome.retry_after, trio.current_time())
            )
            done(outcome)

        self._sender.send(push, heard)
        has_returned = True

    def after_outcomes(self, callback: Callable[[], None]) -> None:
        """As `Sender.after_outcomes`."""
        self._sender.after_outcomes(callback)

    def probe(self, route: PushRoute, done: Probed) -> bool:
        """As `Sender.probe`. Not a push, so not part of the history."""
        return self._sender.probe(route, done)

    def forget(self, lane: str) -> None:
        """As `Sender.forget`."""
        self._sender.forget(lane)
