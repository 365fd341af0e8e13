"""What serial and batch dispatch share: the decision after an answer, the end of an endpoint that
is gone, and the rule that a given-up message is settled only when its dead letter is kept.
"""

import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Generic, TypeVar, assert_never

from msgspec import Struct

from hermes_actors.consumer.delivery.broadcast import PushCallbacks
from hermes_actors.consumer.delivery.dead_letters import KeptDeadLetters
from hermes_actors.consumer.delivery.delivery import (
    Buffer,
    Delivery,
    PushAttempts,
    Settlement,
    Transitions,
)
from hermes_actors.consumer.delivery.parts import ConsumerParts
from hermes_actors.consumer.delivery.pushing import Pushing
from hermes_actors.consumer.delivery.retry import (
    Again,
    Discard,
    Gone,
    RetryPolicy,
    decide,
    ending_detail,
)
from hermes_actors.consumer.rates.control import Pace
from hermes_actors.consumer.senders.sender import Sender, SendOutcome
from hermes_actors.coordination.owned import Owned
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.dead_letter import DiscardReason
from hermes_actors.model.message import UndecodableRecord, from_record, is_enveloped
from hermes_actors.model.subscription import BatchPolicy, SerialPolicy
from hermes_actors.model.trace_context import trace_ids
from hermes_actors.status.reasons import Code, Reason, because
from hermes_actors.status.record import LastUndelivered

_logger = logging.getLogger(__name__)


FILL_MAX = 128
"""Maximum number of messages before the loop yields to other tasks: about 2 ms of work."""


class Surroundings(Struct, frozen=True):
    """What a dispatcher shares with its actor. None of the callbacks waits.

    `wake` makes the sending loop check for work before its alarm. `note_settled` reports that a
    message is settled; `note_landed` that nothing is under way any more, while it stops.
    """

    parts: ConsumerParts
    owned: Owned
    transitions: Transitions
    letters: KeptDeadLetters
    wake: Callable[[], None]
    note_settled: Callable[[], None]
    note_landed: Callable[[], None]


T = TypeVar("T", bound=PushAttempts)


class Dispatching(Generic[T]):
    """Decides what is pushed when, and what follows from the answers. One push is a `T`. Nothing
    here waits.

    `buffer` holds the messages, `pace` limits their rate. `note_room`, set by the user, is called
    when fresh messages have been dispatched. `alarm_s`, set by the sending loop, is when that wakes
    by itself. `error` is an exception from a callback, for the actor to raise. `gone` says why
    nothing is attempted until a new version of the subscription comes.

    `taken` and `taken_bytes` count the messages of all attempts and their bytes. `last_failure` is
    the outcome of the last failed attempt, `last_attempts` that attempt's number.
    """

    _pushing: Pushing

    def __init__(
        self, live: LiveSubscription, around: Surroundings, buffer: Buffer, pace: Pace
    ) -> None:
        parts, owned = around.parts, around.owned
        self.live = live
        self.buffer = buffer
        self.pace = pace
        self._parts = parts
        self._clock = parts.clock
        self._transitions = around.transitions
        self._letters = around.letters
        self._around = around
        self._owned = owned
        self._is_lease_open = owned.lease.is_open
        self._caller = PushCallbacks(self._may_begin, lambda: self._is_abandoned, self._fail)
        # Failures that came while the lease was closed, with their times.
        self._unsettled: deque[tuple[T, SendOutcome, float]] = deque()
        self._is_stopping = False
        # Stopping, or the endpoint is gone.
        self._is_halted = False
        self._is_abandoned = False
        self._version = 0
        self._sender: Sender | None = None
        self.note_room: Callable[[], None] = lambda: None
        self.alarm_s = float("inf")
        self.error: Exception | None = None
        self.gone = ""
        self.last_undelivered: LastUndelivered | None = None
        self.last_failure: SendOutcome | None = None
        self.last_failure_ms = 0
        self._last_success_s: float | None = None
        self.last_attempts = 0
        self.taken = self.taken_bytes = 0

    def _begin(self, live: LiveSubscription, policy: SerialPolicy | BatchPolicy) -> None:
        """Apply a new version of the subscription."""
        self.live = live
        self._version += 1
        self._retry_policy = RetryPolicy(
            policy,
            has_oauth=live.subscription.o_auth_policy is not None,
            gone_suspends=self._parts.config.gone_suspends,
        )
        self._prepare(live)
        self.gone = ""
        self._is_halted = self._is_stopping

    def _prepare(self, live: LiveSubscription) -> None:
        """Prepare to push to the endpoint of this version. Raises Refused."""
        self._pushing = Pushing(
            live,
            self._parts,
            self._transitions,
            self._retry_policy,
            self._caller,
            epoch=self._owned.epoch,
        )
        self._sender = self._pushing.sender

    def stop(self) -> None:
        """Begin no further attempt. Outcomes of pushes under way still count."""
        self._is_stopping = self._is_halted = True

    def abandon(self) -> None:
        """Drop all messages and ignore outcomes to come. Pushes under way are repeated after a
        restart.
        """
        self._is_stopping = self._is_halted = self._is_abandoned = True
        # After a crash the sender must not keep a queue of old pushes ahead of the new ones.
        if self._sender is not None:
            self._sender.forget(str(self.live.name))
        # The gauges outlive the consumer while it is suspended; up to 64 MiB of messages must not.
        self.buffer.clear()
        self._unsettled.clear()

    @property
    @abstractmethod
    def read_ahead(self) -> int:
        """How many fresh messages to read ahead."""

    @property
    def last_success_ms(self) -> int:
        """When an attempt last succeeded, by the wall clock; 0 if none has."""
        if self._last_success_s is None:
            return 0
        ago_s = self._clock.monotonic_s() - self._last_success_s
        return self._clock.now_ms() - round(1_000 * ago_s)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """What limits the sending rate now."""
        if not self._is_lease_open():
            return (because(Code.PAUSED),)
        trouble = "" if self._sender is None else self._sender.trouble
        no_token = (because(Code.UNAUTHORIZED, detail=trouble),) if trouble else ()
        return (*no_token, *self._held_back())

    @abstractmethod
    def _held_back(self) -> list[Reason]:
        """What limits the sending rate while the lease is open."""

    @abstractmethod
    def adopt(self, live: LiveSubscription) -> None:
        """Apply a new version of the subscription."""

    # Sending.

    @abstractmethod
    def on_read(self) -> None:
        """Send of the messages that have been read what may be sent now, or wake the sending
        loop.
        """

    def fill(self, now_s: float) -> int:
        """Attempt what may be attempted now. FILL_MAX if there may be more to do at once."""
        if not self._is_lease_open():
            # The actor waits for the lease.
            self._around.wake()
            return 0
        while self._unsettled:
            what, outcome, failed_s = self._unsettled.popleft()
            if outcome.is_answered or what.is_superseded:
                self._on_failure(what, outcome, failed_s)
            else:
                # Without an answer it proves nothing, because this node was cut off itself: repeat
                # the attempt.
                self._repeat(what, now_s)
            self._note_landed()
        return 0 if self._is_halted else self._fill(now_s)

    @abstractmethod
    def _fill(self, now_s: float) -> int:
        """As `fill`, with an open lease."""

    @abstractmethod
    def idle_s(self, now_s: float) -> float:
        """How long nothing is due unless an answer or a record comes."""

    def _may_begin(self) -> bool:
        """True while a push that waited in a sender may begin."""
        return not self._is_abandoned and self._is_lease_open()

    # Outcomes. These run in the sender's callback, on either loop.

    def _on_outcome(self, what: T, outcome: SendOutcome) -> None:
        if self._is_abandoned:
            return
        try:
            self._land(what, outcome)
        except Exception as error:  # noqa: BLE001
            self._fail(error)

    @abstractmethod
    def _land(self, what: T, outcome: SendOutcome) -> None:
        """Handle an attempt's outcome."""

    def _fail(self, error: Exception) -> None:
        """Keep an exception for the actor to raise, so that its supervisor restarts it."""
        self.error = error
        self._around.wake()

    def _on_failure(self, what: T, outcome: SendOutcome, now_s: float) -> None:
        """Handle a failed attempt: retry, give up, or suspend."""
        if not self._is_lease_open():
            # The result is visible to others, and another owner may have the messages by now.
            self._unsettled.append((what, outcome, now_s))
            self._around.wake()
            return
        what.failed(outcome)
        self.last_failure, self.last_attempts = outcome, what.attempts
        now_ms = self.last_failure_ms = self._clock.now_ms()
        self._learn(what, outcome, now_s)
        if what.is_superseded:
            self.buffer.let_go(what)
            self._around.note_settled()
            return
        decision = decide(
            outcome,
            policy=self._retry_policy,
            previous_backoff_ms=what.backoff_ms,
            age_ms=self._age_ms(what, now_s),
            now_ms=now_ms,
            rng=self._parts.rng,
            attempts=what.attempts,
        )
        match decision:
            case Again(delay_ms, backoff_ms):
                what.backoff_ms = backoff_ms
                self.buffer.wait(what, now_s + delay_ms / 1_000)
            case Discard(reason):
                self._give_up(what, reason, outcome.status, ending_detail(reason, outcome))
            case Gone():
                # Kept until the subscription is resumed.
                self.buffer.wait(what, now_s)
                # An earlier version's endpoint says nothing about the current one.
                if what.version == self._version:
                    self._on_gone(outcome)
            case _:
                assert_never(decision)

    @abstractmethod
    def _age_ms(self, what: T, now_s: float) -> float:
        """The message's age in milliseconds, as its time to live counts it."""

    def _learn(self, what: T, outcome: SendOutcome, now_s: float) -> None:
        """Adapt to what a failed attempt says about the endpoint. Nothing by default."""

    def _repeat(self, what: T, now_s: float) -> None:
        """Repeat an attempt that did not count."""
        self.buffer.wait(what, now_s)

    def _on_gone(self, outcome: SendOutcome) -> None:
        if self.gone:
            return
        self._is_halted = True
        moment = datetime.fromtimestamp(self.last_failure_ms / 1_000, UTC)
        self.gone = f"the endpoint is gone, it answered {outcome.reason()} at {moment:%Y-%m-%dT%TZ}"
        _logger.warning("%s: %s; suspending it", self.live.name, self.gone)
        self._parts.suspend(self.live, self.gone)

    # Giving up: counted, logged and kept as a dead letter, never silently.

    def _give_up(self, what: T, reason: DiscardReason, status: int, detail: str) -> None:
        """Make no further attempt: the messages become dead letters."""
        self._log_discarded(what, reason, detail)
        self.buffer.bury(what)
        for each in what.deliveries:
            self._write_off(each, reason, status, detail)

    def give_up(self, delivery: Delivery, reason: DiscardReason, detail: str) -> None:
        """Make a message that was just read a dead letter, without an attempt."""
        # Do not open an envelope: it may be the reason for giving up.
        if delivery.message is None and not is_enveloped(delivery.record):
            with suppress(UndecodableRecord):
                delivery.message = from_record(delivery.record)
        self._log_discarded(delivery, reason, detail)
        self.buffer.bury_read(delivery)
        self._write_off(delivery, reason, 0, detail)

    def _log_discarded(self, what: PushAttempts, reason: DiscardReason, detail: str) -> None:
        message = what.deliveries[0].message
        _logger.info(
            "%s: discarded %s after %d attempts: %s: %s",
            self.live.name,
            what.label,
            what.attempts,
            reason.value,
            detail,
            extra=None if message is None else trace_ids(message.traceparent),
        )

    def _write_off(
        self, delivery: Delivery, reason: DiscardReason, status: int, detail: str
    ) -> None:
        """Make a buried message a dead letter."""
        self._transitions.given_up((delivery,), reason)
        letter = self._letters.letter_of(delivery, reason, detail, status)
        record = delivery.record
        self.last_undelivered = LastUndelivered(
            letter.at_ms, record.partition, record.offset, f"{reason.value}: {detail}"
        )
        self._letters.add(letter, partial(self._on_kept, delivery))

    def _on_kept(self, delivery: Delivery, settlement: Settlement) -> None:
        """Settle the message and drop it, because its dead letter is safe."""
        if self._is_abandoned:
            return
        delivery.settled()
        self._transitions.settled((delivery,), settlement)
        self.buffer.forget(delivery)
        self._around.note_settled()
        self._note_landed()
        # Fresh messages may have waited for its place in the retry queue.
        self._around.wake()

    def _note_landed(self) -> None:
        if self._is_stopping and not self.buffer.inflight and not self.buffer.buried:
            self._around.note_landed()
