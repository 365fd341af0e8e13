"""The sending half of a consumer whose messages are pulled: a pull takes messages from the queue,
and an acknowledgement is their success.

Nothing is sent until a client asks. So a message that nobody has fetched is not in flight: it has
no attempt and no deadline. A message that a client has is in flight, and counts against the window.
A nack, and a deadline that passes, is a failed attempt, which the retry policy judges. Clients set
the pace: the policy's rate does not apply, and nothing is learned from failures.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

import trio

from hermes_actors.consumer.delivery.delivery import Delivery
from hermes_actors.consumer.delivery.dispatching import FILL_MAX, Surroundings
from hermes_actors.consumer.pulling.hand_outs import HandOut, HandOuts
from hermes_actors.consumer.rates.control import Pace
from hermes_actors.consumer.senders.sender import Failure, SendOutcome
from hermes_actors.consumer.serial.dispatch import SerialDispatch
from hermes_actors.errors import Unavailable
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.pulling import RefusedAck
from hermes_actors.status.reasons import Code, Reason, because

WAITING_MAX = 1_000
"""Maximum number of pulls of one subscription that wait for messages."""
ANSWER_BYTES_MAX = 4_194_304
"""A pull ends with the message whose body brings the answer above this size."""

_WINDOW_FACTOR = 10
_QUIET_S = 10.0
_ACKNOWLEDGED = SendOutcome(200)


class NotOwned(Unavailable):
    """Messages cannot be handed out or settled here now: another node does, or none yet."""

    def __init__(self) -> None:
        super().__init__("This node does not own the subscription any more", status=421)


class _Unlimited(Pace):
    """Clients set the pace."""

    rate_now = 0.0
    allowed = -1.0

    def divide(self) -> None:
        """Nothing is divided."""


class PullDispatch(SerialDispatch):
    """The sending half of one pull subscription. `pull` and `settle` are for its clients."""

    def __init__(self, live: LiveSubscription, around: Surroundings) -> None:
        self._outs = HandOuts(around.owned.epoch, f"{around.parts.rng.getrandbits(64):016x}")
        # Pulls that wait for messages, the next first.
        self._calls: deque[trio.Event] = deque()
        self._pulled_s = around.parts.clock.monotonic_s()
        self._taken: list[HandOut] = []
        super().__init__(live, around)
        self.pace = _Unlimited()

    def _prepare(self, live: LiveSubscription) -> None:
        """Nothing is pushed."""

    def adopt(self, live: LiveSubscription) -> None:
        """Apply a new version of the subscription. Messages with clients keep their deadlines."""
        super().adopt(live)
        if not self.policy.inflight_size:
            self._queue.window = _WINDOW_FACTOR * self._parts.config.inflight_max

    def stop(self) -> None:
        """Hand out nothing more. Messages with clients can still be settled."""
        super().stop()
        self._call_all()

    def abandon(self) -> None:
        """Forget which messages clients have: their ack ids are refused from now on."""
        super().abandon()
        self._outs.clear()
        self._call_all()

    @property
    def read_ahead(self) -> int:
        """How many fresh messages to read ahead."""
        return self._queue.window

    # For clients.

    async def pull(self, count: int, wait_s: float) -> Sequence[HandOut]:
        """Take up to `count` messages, and wait up to `wait_s` for the first. If cancelled, all
        are available again. Raises NotOwned, and Unavailable if too many pulls wait.
        """
        ends_s = trio.current_time() + wait_s
        found: list[HandOut] = []
        try:
            while True:
                more = self._take(min(FILL_MAX, count - len(found)), found)
                found += more
                left_s = ends_s - trio.current_time()
                if found and (not more or len(found) == count or not self._has_due):
                    break
                if found:
                    await trio.lowlevel.checkpoint()
                elif left_s <= 0:
                    break
                else:
                    await self._wait_for_call(left_s)
        except (trio.Cancelled, NotOwned):
            self.undo(found)
            raise
        finally:
            self._pulled_s = self._monotonic_s()
            self._call_next()
        return found

    async def acknowledge(self, ack_ids: Sequence[str]) -> list[RefusedAck]:
        """Settle these messages; return the ids that had no effect. Raises NotOwned."""
        return await self._settle(ack_ids, lambda out: self._end(out, _ACKNOWLEDGED))

    async def give_back(self, ack_ids: Sequence[str], delay_ms: int | None) -> list[RefusedAck]:
        """Count a failed attempt for these messages; return the ids that had no effect. Raises
        NotOwned.
        """
        nacked = SendOutcome(0, "", Failure.NACKED, "a client gave it back", pause_ms=delay_ms)
        return await self._settle(ack_ids, lambda out: self._end(out, nacked))

    async def extend(self, ack_ids: Sequence[str], deadline_s: float) -> list[RefusedAck]:
        """Give clients so long from now for these messages; return the ids that had no effect.
        Raises NotOwned.
        """
        until_s = self._monotonic_s() + deadline_s
        return await self._settle(ack_ids, lambda out: self._outs.extend(out, until_s))

    async def _settle(
        self, ack_ids: Sequence[str], act: Callable[[HandOut], None]
    ) -> list[RefusedAck]:
        refused: list[RefusedAck] = []
        for at in range(0, len(ack_ids), FILL_MAX):
            if self._is_abandoned or not self._is_lease_open():
                raise NotOwned
            self._is_filling = True
            for each in ack_ids[at : at + FILL_MAX]:
                found = self._outs.find(each)
                if isinstance(found, RefusedAck):
                    refused.append(found)
                else:
                    act(found)
            self._is_filling = False
            # The earliest deadline may be another, and there may be room.
            self._around.wake()
            await trio.lowlevel.checkpoint()
        return refused

    def _end(self, out: HandOut, outcome: SendOutcome) -> None:
        self._outs.remove(out)
        self._on_outcome(out.delivery, outcome)

    # Handing out.

    def _take(self, count: int, before: Iterable[HandOut]) -> list[HandOut]:
        """Hand out what is due, up to `count`."""
        if self._is_halted or not self._is_lease_open():
            raise NotOwned
        now_s, queue = self._monotonic_s(), self._queue
        room = ANSWER_BYTES_MAX - sum(len(each.delivery.first.body) for each in before)
        taken: list[HandOut] = []
        self._taken = taken
        looked_at = 0
        while len(taken) < count and looked_at < FILL_MAX and room > 0:
            delivery = queue.next(now_s)
            if delivery is None:
                break
            looked_at += 1
            if delivery.taken_up_s is not None or self._take_up(delivery, now_s):
                self.taken += 1
                self.taken_bytes += len(delivery.record.value)
                room -= len(delivery.first.body)
                self._attempt(delivery, now_s)
        if looked_at:
            self.note_room()
            # There is a new deadline.
            self._around.wake()
        return taken

    def _send(self, delivery: Delivery, now_s: float) -> None:
        self._taken.append(self._outs.add(delivery, now_s + self.policy.ack_deadline_seconds))

    def undo(self, outs: Iterable[HandOut]) -> None:
        """Make these messages available again: no client got them, so the attempt does not
        count.
        """
        now_s = self._monotonic_s()
        if not self._is_abandoned:
            for each in outs:
                # Its deadline may have passed meanwhile.
                if self._outs.find(str(each.ack_id)) is not each:
                    continue
                self._outs.remove(each)
                delivery = each.delivery
                if delivery.is_superseded:
                    self.buffer.let_go(delivery)
                    self._around.note_settled()
                else:
                    delivery.taken_up_s = delivery.taken_up_s if delivery.attempts else None
                    self._repeat(delivery, now_s)
            self._around.wake()

    # Waiting.

    async def _wait_for_call(self, wait_s: float) -> None:
        if len(self._calls) >= WAITING_MAX:
            raise Unavailable(
                f"{WAITING_MAX} pulls of this subscription wait already; try again later"
            )
        call = trio.Event()
        self._calls.append(call)
        # A retry may be due before messages are read.
        self._around.wake()
        try:
            with trio.move_on_after(wait_s):
                await call.wait()
        finally:
            if not call.is_set():
                self._calls.remove(call)

    def _call_next(self) -> None:
        """Let the next waiting pull look if there is something for it."""
        if self._calls and self._has_due:
            self._calls.popleft().set()

    def _call_all(self) -> None:
        while self._calls:
            self._calls.popleft().set()

    @property
    def _has_due(self) -> bool:
        queue = self._queue
        if self._is_halted or queue.inflight >= queue.window:
            return False
        is_fresh = queue.fresh > 0 and not queue.is_waiting_full
        return is_fresh or queue.next_due_s <= self._monotonic_s()

    # For the actor.

    def on_read(self) -> None:
        """Wake the loop if a pull waits for messages."""
        if self._calls:
            self._around.wake()

    def _fill(self, now_s: float) -> int:
        """End what is overdue, and call a waiting pull if there is something for it."""
        overdue = self._outs.overdue(now_s, FILL_MAX)
        self._is_filling = True
        for out in overdue:
            after_s = now_s - out.delivery.sent_s
            detail = f"a client did not acknowledge it in {after_s:.3g} s (ackDeadlineSeconds)"
            self._on_outcome(out.delivery, SendOutcome(0, "", Failure.TIMEOUT, detail))
        self._is_filling = False
        self._call_next()
        return len(overdue)

    def idle_s(self, now_s: float) -> float:
        """How long nothing is due unless a client or a record comes."""
        if self._is_halted:
            return float("inf")
        due_s, queue = self._outs.next_s, self._queue
        if self._calls and queue.inflight < queue.window:
            due_s = min(due_s, now_s if self._has_due else queue.next_due_s)
        return due_s - now_s

    def _learn(self, delivery: Delivery, outcome: SendOutcome, now_s: float) -> None:
        """Nothing: failures of clients do not slow the subscription."""

    def _held_back(self) -> list[Reason]:
        queue, reasons = self._queue, []
        for_s = self._monotonic_s() - self._pulled_s
        if queue.inflight >= queue.window:
            reasons.append(because(Code.ALL_OUT, count=queue.window))
        elif self._has_due and not self._calls and for_s >= _QUIET_S:
            reasons.append(because(Code.NO_CLIENT, for_s=for_s))
        if queue.parked:
            reasons.append(because(Code.KEYS_WAIT, count=queue.parked))
        return reasons
