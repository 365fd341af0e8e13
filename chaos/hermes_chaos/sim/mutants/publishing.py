"""Seeded bugs of publishing through outages: fallback, breaker, spool and idempotency keys."""

import math
from collections.abc import Callable
from typing import Any

from hermes_actors.fallback.breaker import Breaker
from hermes_actors.fallback.budget import HedgeBudget
from hermes_actors.fallback.flight import Flying
from hermes_actors.fallback.hedge import Hedge
from hermes_actors.fallback.replayer import Item, Replayer
from hermes_actors.fallback.spool import Spool
from hermes_actors.fallback.spool_store import SegmentStore
from hermes_actors.log.base import Log
from hermes_actors.publisher.idempotency import Claim
from hermes_chaos.sim.mutants.mutant import Mutant

_replay: Callable[..., Any] = Replayer._append


def _append_without_fsync(self: SegmentStore, name: str, _at: int, content: bytes) -> None:
    self._disk.append(name, content, syncs=False)


def _hold_nothing(_self: Spool, _log_topic: str, _key: bytes) -> bool:
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
    self._spool.settle([waiting for waiting, _ in items])
    return True


def _match_any(self: Claim, _partition_key: bytes | None, _body: bytes) -> int:
    return self._status


def _wait_for_ever(_self: Hedge, _now_s: float) -> float:
    return math.inf


def _never_done(_self: Flying) -> bool:
    return False


PUBLISHING = (
    Mutant(
        "ack-before-fsync",
        "a publisher is answered 202 before its message is safe on the disk",
        ((SegmentStore, "_append", _append_without_fsync),),
    ),
    Mutant(
        "spool-overtaken",
        "messages of a key go to the log while older ones of it wait in the spool",
        ((Spool, "holds", _hold_nothing),),
    ),
    Mutant(
        "replay-once",
        "what a log does not take when it is replayed is forgotten",
        ((Replayer, "_append", _replay_once),),
    ),
    Mutant(
        "breaker-never-opens",
        "a log that does not answer is given every message all the same",
        ((Breaker, "_open", _open_never),),
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
    ),
    Mutant(
        "no-rescue",
        "a message that the hedge budget refused misses its deadline",
        ((Hedge, "_rescue_after_s", _wait_for_ever),),
    ),
    Mutant(
        "hedge-after-answer",
        "a message goes to another datacentre though it has been answered",
        ((Flying, "is_done", property(_never_done)),),
    ),
    Mutant(
        "any-payload",
        "another message under a used idempotency key is answered as if it were stored",
        ((Claim, "match", _match_any),),
    ),
)
