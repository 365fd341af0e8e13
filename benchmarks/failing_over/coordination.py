"""Observes the coordination log: who leads, and when each life first owned work."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from hermes_actors.config import KafkaClusterConfig, KafkaConfig
from hermes_actors.coordination.commands import (
    Join,
    Loads,
    Said,
    Undecodable,
    coordination_topic,
    decode,
)
from hermes_actors.coordination.reasons import text
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.log.base import UnknownTopic
from hermes_actors.log.kafka.log import open_kafka_log
from hermes_actors.runtime.clock import SystemClock
from hermes_chaos.live.logs import read_all


class Life(NamedTuple):
    """A node's life from its Join on. Times are those of time.perf_counter()."""

    node: str
    joined_s: float


class Witness:
    """Folds a datacentre's coordination log from its first record. On trio, as a guest."""

    def __init__(self, bootstrap_servers: Sequence[str]) -> None:
        self._cluster = KafkaClusterConfig(bootstrap_servers=list(bootstrap_servers))
        self.state = CoordinationState()
        self._lives: dict[str, Life] = {}
        self._owned_s: dict[str, float] = {}
        self._loads: list[tuple[float, Loads]] = []

    async def look(self) -> CoordinationState:
        """Fold the records since the last call; nothing if there is no such log."""
        ahead_s = time.time() - time.perf_counter()
        async with open_kafka_log("dc1", self._cluster, KafkaConfig(), SystemClock()) as log:
            try:
                records = await read_all(log, coordination_topic())
            except UnknownTopic:
                return self.state
        for record in records:
            if record.offset >= self.state.position:
                try:
                    said: Said | None = decode(record.value)
                except Undecodable:
                    said = None
                self.state.apply(record.offset, record.timestamp_ms, said)
                self._note(record.timestamp_ms / 1_000 - ahead_s, said)
        return self.state

    async def leader(self) -> str | None:
        """The name of the leading node."""
        state = await self.look()
        return state.node_of(state.leader) if state.leader else None

    async def owned_again_s(self, node: str, from_s: float) -> float | None:
        """When a life of the node that began after that moment first owned anything; None if it has
        not.
        """
        await self.look()
        times = [
            self._owned_s[boot]
            for boot, life in self._lives.items()
            if life.node == node and life.joined_s > from_s and boot in self._owned_s
        ]
        return min(times, default=None)

    async def moves(self, from_s: float) -> dict[str, int]:
        """The reasons of plans that moved anything since then, with the number of moves
        for each.
        """
        state = await self.look()
        from_ms = (from_s + time.time() - time.perf_counter()) * 1_000
        return dict(Counter(text(each.reasons) for each in state.moves if each.at_ms > from_ms))

    async def loads(self, from_s: float) -> dict[str, list[Loads]]:
        """The task costs that each node has reported since then, by node name."""
        await self.look()
        found: dict[str, list[Loads]] = {}
        for at_s, said in self._loads:
            if at_s > from_s and said.boot in self._lives:
                found.setdefault(self._lives[said.boot].node, []).append(said)
        return found

    def _note(self, at_s: float, said: Said | None) -> None:
        if isinstance(said, Join):
            self._lives[said.boot] = Life(said.node, at_s)
        if isinstance(said, Loads):
            self._loads.append((at_s, said))
        for boot in self.state.members:
            if boot not in self._owned_s and self.state.grants_of(boot):
                self._owned_s[boot] = at_s
