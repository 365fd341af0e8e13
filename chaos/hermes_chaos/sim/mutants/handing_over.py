"""Seeded bugs of hand-overs: fences, last and late commits, the next owner's start, and truncated
logs.
"""

from collections.abc import Iterable
from typing import Any

import trio

from hermes_actors.consumer.delivery.dead_letters import KeptDeadLetters
from hermes_actors.consumer.delivery.dispatching import Dispatching
from hermes_actors.consumer.offsets.partition import PartitionOffsets, Trail
from hermes_actors.consumer.offsets.progress import TopicProgress
from hermes_actors.consumer.push_consumer import PushConsumer
from hermes_actors.consumer.reading.intake import Intake
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.coordination.lease import Lease
from hermes_actors.coordination.owned import Unfenced
from hermes_actors.coordination.values import LEASE_MS
from hermes_actors.log.base import Commit, LogUnavailable, OffsetOutOfRange, UnknownTopic
from hermes_actors.log.commits import decode
from hermes_actors.model.record import StoredRecord
from hermes_actors.runtime.clock import Clock
from hermes_actors.status.reasons import Code, because
from hermes_chaos.sim.faults.strikes import Fault
from hermes_chaos.sim.mutants.mutant import WHOLE, Mutant
from hermes_chaos.sim.world import Shape

_begin_lease = Lease.__init__
_folded = Lease.folded
_from_commit = TopicProgress._from_commit
_fill = Dispatching.fill
_on_failure = Dispatching._on_failure
_begin_letters = KeptDeadLetters.__init__


def _fence_of_a_lease(self: Lease, boot: str, clock: Clock, _fence_s: float = 2.0) -> None:
    _begin_lease(self, boot, clock, LEASE_MS / 1_000)


def _fence_from_the_reading(self: Lease, number: int) -> None:
    self._sent = type(self._sent)(
        ((sent, self._now_s()) for sent, _ in self._sent), maxlen=self._sent.maxlen
    )
    _folded(self, number)


def _fill_unasked(self: Dispatching[Any], now_s: float) -> int:
    is_open, self._is_lease_open = self._is_lease_open, lambda: True
    try:
        return _fill(self, now_s)
    finally:
        self._is_lease_open = is_open


def _end_unasked(self: Dispatching[Any], what: Any, outcome: SendOutcome, now_s: float) -> None:
    is_open, self._is_lease_open = self._is_lease_open, lambda: True
    try:
        _on_failure(self, what, outcome, now_s)
    finally:
        self._is_lease_open = is_open


async def _drain_without_a_word(self: PushConsumer) -> None:
    with trio.move_on_after(self._stop_grace_s):
        while self._buffer.inflight or self._buffer.buried:
            await self._landed.wait()


async def _commit_then_drain(self: PushConsumer) -> None:
    with trio.move_on_after(1.0):
        await self._commit()
    await _drain_without_a_word(self)


def _position_only(self: TopicProgress, partition: int, commit: Commit) -> PartitionOffsets | None:
    found = _from_commit(self, partition, commit)
    return None if found is None else PartitionOffsets(decode(commit).position)


async def _look_at_nothing(_self: TopicProgress, _on_overwritten: object, _rng: object) -> None:
    pass


def _never_over(_self: TopicProgress, _ours: Commit, _held: Commit | None) -> bool:
    return False


async def _wait_where_it_was(self: Intake) -> None:
    try:
        await self._read_partitions()
    except OffsetOutOfRange as error:
        if error.position < error.start:
            self._on_out_of_range(error)
        else:
            await trio.sleep(0.05)
    except (LogUnavailable, UnknownTopic) as error:
        self._pause(because(Code.LOG_AWAY, detail=str(error)))


def _doubt_nothing(_self: Intake, _partitions: Iterable[int], _after_s: float = 0.0) -> None:
    pass


def _letters_unasked(
    self: KeptDeadLetters, live: Any, log_topic: str, parts: Any, _lease: object
) -> None:
    _begin_letters(self, live, log_topic, parts, Unfenced())


def _recognize_all(_self: Trail, _record: StoredRecord) -> bool:
    return True


_nothing_newest = property(lambda _self: None)


_AWAY = Shape(faults=frozenset((Fault.NODE_PAUSE, Fault.LEASE_EDGE, Fault.SUBSCRIBER)), strikes=30)
_LETTERS_WAIT = Shape(
    faults=_AWAY.faults | {Fault.LOG_SLOW, Fault.DC_LOST},
    strikes=40,
)
_STOPS = Shape(faults=frozenset((Fault.NODE_STOP,)), strikes=30)
_LATE = Shape(
    faults=frozenset((Fault.LATE_COMMITS,)), strikes=6, messages_per_publisher=30, settle_max_s=20.0
)
_CUT = Shape(faults=frozenset((Fault.END_LOST,)))
_CUT_AND_MOVED = Shape(faults=frozenset((Fault.END_LOST, Fault.NODE_STOP)), strikes=40)

HANDING_OVER = (
    Mutant(
        "fence-as-long-as-the-lease",
        "a node acts for as long as its lease lasts, without a margin",
        ((Lease, "__init__", _fence_of_a_lease),),
    ),
    Mutant(
        "fence-from-the-reading",
        "a lease counts from when its heartbeat was read, not from when it was sent",
        ((Lease, "folded", _fence_from_the_reading),),
        seed=3,
        shape=_AWAY,
    ),
    Mutant(
        "push-without-lease",
        "a push that follows an answer does not look whether the lease is open",
        ((Dispatching, "fill", _fill_unasked),),
        shape=_AWAY,
    ),
    Mutant(
        "end-without-lease",
        "an answer that comes when the lease has closed ends its message all the same",
        ((Dispatching, "_on_failure", _end_unasked),),
        seed=4,
        shape=_LETTERS_WAIT,
    ),
    Mutant(
        "letters-without-lease",
        "a dead letter that has waited for its log is stored whether the lease is open or not",
        ((KeptDeadLetters, "__init__", _letters_unasked),),
        seed=4,
        shape=_LETTERS_WAIT,
    ),
    Mutant(
        "no-last-commit",
        "who stops commits nothing more",
        ((PushConsumer, "_drain", _drain_without_a_word),),
        seed=4,
    ),
    Mutant(
        "commit-before-the-drain",
        "who stops commits before what is under way has ended",
        ((PushConsumer, "_drain", _commit_then_drain),),
        seed=7,
        shape=_STOPS,
    ),
    Mutant(
        "intervals-forgotten",
        "a consumer begins with a commit's position, and forgets what is settled above it",
        ((TopicProgress, "_from_commit", _position_only),),
        shape=WHOLE,
    ),
    Mutant(
        "late-commit-stays",
        "nobody looks whether a former owner's late commit lies over one's own",
        ((TopicProgress, "keep_committed", _look_at_nothing),),
        shape=_LATE,
    ),
    Mutant(
        "late-commit-believed",
        "a former owner's late commit is taken for one's own",
        ((TopicProgress, "_is_over", _never_over),),
        shape=_LATE,
    ),
    Mutant(
        "cut-log-outwaited",
        "a reader whose log has lost its end waits until that has grown to where it was",
        ((Intake, "_survive", _wait_where_it_was), (Intake, "_doubt", _doubt_nothing)),
        shape=_CUT,
    ),
    Mutant(
        "rewritten-log-trusted",
        "who begins takes what a log has where it lost its end for what was committed before",
        ((Trail, "recognizes", _recognize_all), (Trail, "newest", _nothing_newest)),
        shape=_CUT_AND_MOVED,
        seed=4,
    ),
)
