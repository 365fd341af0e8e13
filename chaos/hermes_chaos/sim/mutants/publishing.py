"""Seeded bugs of publishing: answers, fallback, breaker, spool and idempotency keys."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from hermes_actors.fallback.breaker import Breaker
from hermes_actors.fallback.budget import HedgeBudget
from hermes_actors.fallback.spool.index import SpoolIndex, Waiting
from hermes_actors.fallback.spool.replay import Item, Replayer
from hermes_actors.fallback.spool.spool import Spool
from hermes_actors.fallback.spool.store import SegmentStore
from hermes_actors.log.base import Log, Stored
from hermes_actors.log.batching import PartitionBatch
from hermes_actors.publisher.hedging.decision import Decision
from hermes_actors.publisher.hedging.flight import Attempts
from hermes_actors.publisher.hedging.hedge import Hedge, Remote
from hermes_actors.publisher.idempotency import KeyClaim
from hermes_actors.publisher.pending import Pending
from hermes_actors.publisher.producer import TopicProducer
from hermes_chaos.sim.faults.strikes import Fault
from hermes_chaos.sim.mutants.mutant import WHOLE, Mutant
from hermes_chaos.sim.world import Shape

_store = TopicProducer._store
_replay: Callable[..., Any] = Replayer._append
_read = Spool.read
_start = Hedge._start


async def _acknowledge_then_append(self: TopicProducer, batch: PartitionBatch[Pending]) -> None:
    for pending in batch.items:
        # `settle` drops the messages, which the append still needs.
        messages = pending.messages
        pending.settle(Stored(0))
        pending.messages = messages
    await _store(self, batch)


def _append_without_fsync(self: SegmentStore, name: str, at: int, content: bytes) -> None:
    self.disk.write(name, at, content, syncs=False)


def _hold_nothing(_self: SpoolIndex, _log_topic: str, _key: bytes) -> bool:
    return False


def _open_never(_self: Breaker, _cause: object, _now_s: float) -> bool:
    return False


def _close_never(_self: Breaker, _now_s: float) -> None:
    pass


def _grant_all(_self: HedgeBudget, _count: int) -> bool:
    return True


async def _replay_once(
    self: Replayer, sending: Any, log: Log, partition: int, items: list[Item]
) -> bool:
    await _replay(self, sending, log, partition, items)
    self.spool.settle([waiting for waiting, _ in items])
    return True


def _match_any(self: KeyClaim, _partition_key: bytes | None, _body: bytes) -> int:
    return self._status


def _wait_for_ever(_self: Decision, _started_s: float) -> float:
    return math.inf


def _never_done(_self: Attempts) -> bool:
    return False


async def _read_backwards(self: Spool, batch: Sequence[Waiting]) -> list[Item]:
    return (await _read(self, batch))[::-1]


def _start_backwards(self: Hedge, remote: Remote) -> None:
    for queue in remote.batcher._keyed:
        queue.reverse()
    _start(self, remote)


_BURSTS = Shape(
    faults=frozenset((Fault.DC_LOST,)),
    bursts=((Fault.DC_LOST, 0.9, 80),),
    burst_pause_max_s=0.002,
    strikes=5,
    messages_per_publisher=20,
)

PUBLISHING = (
    Mutant(
        "ack-before-append",
        "a publisher is answered 201 before its message is in the log",
        ((TopicProducer, "_store", _acknowledge_then_append),),
    ),
    Mutant(
        "ack-before-fsync",
        "a publisher is answered 202 before its message is safe on the disk",
        ((SegmentStore, "_append", _append_without_fsync),),
    ),
    Mutant(
        "spool-overtaken",
        "messages of a key go to the log while older ones of it wait in the spool",
        ((SpoolIndex, "holds", _hold_nothing),),
        shape=WHOLE,
    ),
    Mutant(
        "replay-once",
        "what a log does not take when it is replayed is forgotten",
        ((Replayer, "_append", _replay_once),),
        seed=9,
        shape=Shape(settle_max_s=20.0),
    ),
    Mutant(
        "breaker-never-opens",
        "a log that does not answer is given every message all the same",
        ((Breaker, "_open", _open_never),),
        seed=3,
    ),
    Mutant(
        "breaker-never-closes",
        "a log that answers again is not used again",
        ((Breaker, "_close", _close_never),),
    ),
    Mutant(
        "no-hedge-budget",
        "every message that is slow is sent to another datacentre",
        ((HedgeBudget, "take", _grant_all),),
        seed=6,
        shape=WHOLE,
    ),
    Mutant(
        "no-rescue",
        "a message that the hedge budget refused misses its deadline",
        ((Decision, "_rescue_s", _wait_for_ever),),
    ),
    Mutant(
        "hedge-after-answer",
        "a message goes to another datacentre though it has been answered",
        ((Attempts, "is_done", property(_never_done)),),
        seed=2,
    ),
    Mutant(
        "replay-backwards",
        "the spool is sent with the newest message first",
        ((Spool, "read", _read_backwards),),
    ),
    Mutant(
        "remote-backwards",
        "messages for another datacentre are sent there with the newest first",
        ((Hedge, "_start", _start_backwards),),
        seed=3,
        shape=_BURSTS,
    ),
    Mutant(
        "any-payload",
        "another message under a used idempotency key is answered as if it were stored",
        ((KeyClaim, "match", _match_any),),
    ),
)
