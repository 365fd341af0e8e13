"""The datacentres that a node publishes to: the state that topics share, and each topic's path to
them.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import trio

from hermes_actors.config import ConfigError
from hermes_actors.config.fallback import FallbackConfig
from hermes_actors.fallback.breaker import Breaker, Sent
from hermes_actors.fallback.delay import AdaptiveDelay
from hermes_actors.log.base import Log, Outcome, RefusedRecord, stored_count
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import Clock
from hermes_actors.telemetry.metrics import Metrics


@dataclass(eq=False)
class Datacentre:
    """One datacentre's log, and the state of it that all topics share. `is_ready` says, by name,
    whether a datacentre may be used.
    """

    log: Log
    config: FallbackConfig
    rng: random.Random
    metrics: Metrics
    is_ready: Callable[[str], bool]

    def __post_init__(self) -> None:
        self.name = self.log.dc
        self.breaker = Breaker(self.config, self.rng)
        self._delays = {waits: AdaptiveDelay(self.config) for waits in (False, True)}
        self.paths: dict[Path, None] = {}
        metrics = self.metrics
        metrics.gauge("fallback_breaker_is_open", lambda: float(self.breaker.is_open), dc=self.name)

    def delay(self, ack: Ack) -> AdaptiveDelay:
        """The hedge delay of all topics with this ack level."""
        return self._delays[ack.waits_for_replicas]


class Path:
    """One topic's path into one datacentre's log. Call `leave` when the topic is gone.

    `partitions` is the number of its partitions there; None until the log has answered. `on_open`
    is called when the datacentre's breaker opens.
    """

    def __init__(self, dc: Datacentre, ack: Ack) -> None:
        self.dc = dc
        self.name = dc.name
        self._delay = dc.delay(ack)
        self.partitions: int | None = None
        self.on_open: Callable[[Path, float], None] = lambda _path, _now_s: None
        dc.paths[self] = None

    @property
    def is_usable(self) -> bool:
        """True if messages can be sent there, even if the breaker is open."""
        return self.partitions is not None and self.dc.is_ready(self.name)

    @property
    def is_open(self) -> bool:
        """True while nothing but probes should be sent there."""
        return self.dc.breaker.is_open

    def delay_s(self, now_s: float) -> float:
        """How long to wait for its acknowledgement before asking another datacentre."""
        return self._delay.delay_s(now_s)

    def take_probe(self, now_s: float) -> bool:
        """True if one batch must be sent there as a probe."""
        return self.dc.breaker.take_probe(now_s)

    def send(self, count: int, now_s: float) -> Sent:
        """Record that an append of `count` messages starts."""
        sent = Sent(count, now_s)
        self.dc.breaker.add(sent)
        return sent

    def ended(self, sent: Sent, found: Sequence[Outcome], now_s: float) -> None:
        """Report the end of an append to the breaker and the hedge delay."""
        breaker = self.dc.breaker
        if stored_count(found):
            self._delay.observe(now_s - sent.sent_s, sent.count, now_s)
            self._tell(breaker.acknowledged(sent, now_s), now_s)
        elif all(type(each) is RefusedRecord for each in found):
            breaker.answered(sent, now_s)
        else:
            self._tell(breaker.failed(sent, now_s), now_s)

    def check(self, now_s: float) -> None:
        """Let the breaker check for silence."""
        self._tell(self.dc.breaker.check(self.delay_s(now_s), now_s), now_s)

    def leave(self) -> None:
        """Remove this path: the topic is gone."""
        self.dc.paths.pop(self, None)

    def _tell(self, has_opened: bool, now_s: float) -> None:
        if has_opened:
            dc = self.dc
            cause = dc.breaker.cause.value
            dc.metrics.counter("fallback_breaker_opened", dc=dc.name, cause=cause).add()
            for path in list(dc.paths):
                path.on_open(path, now_s)


class Fallback:
    """The own datacentre, the others in order of preference, and the nursery for their appends.

    `nursery` outlives the topics' producers, so that appends that no producer waits for can end.
    `is_ready` is checked before each use of a datacentre. Raises ConfigError if a configured remote
    does not exist.
    """

    def __init__(
        self,
        config: FallbackConfig,
        log: Log,
        remote_logs: Mapping[str, Log],
        nursery: trio.Nursery,
        clock: Clock,
        rng: random.Random,
        metrics: Metrics,
        *,
        is_ready: Callable[[str], bool] = lambda _dc: True,
    ) -> None:
        self.config = config
        self.nursery = nursery
        self.clock = clock
        self.rng = rng
        others = in_order(config.remotes, [dc for dc in remote_logs if dc != log.dc])
        self.local, *self.remotes = [
            Datacentre(each, config, rng, metrics, is_ready)
            for each in (log, *(remote_logs[dc] for dc in others))
        ]
        # Create them at the start, so that the first event increases an existing series.
        metrics.counter("fallback_budget_refused")
        for ack in (Ack.LEADER, Ack.ALL):
            metrics.gauge(
                "fallback_hedge_delay_seconds",
                partial(self._hedge_delay_s, ack),
                ack=ack.value,
            )

    def _hedge_delay_s(self, ack: Ack) -> float:
        return self.local.delay(ack).delay_s(self.clock.monotonic_s())


def in_order(configured: Sequence[str], known: Sequence[str]) -> list[str]:
    """The remotes in the configured order; by default all that are known, by name. Raises
    ConfigError.
    """
    for dc in configured:
        if dc not in known:
            others = ", ".join(sorted(known)) or "none"
            raise ConfigError(
                f"fallback.remotes: '{dc}' is no other datacentre of this node; there are: {others}"
            )
    return list(dict.fromkeys(configured)) or sorted(known)
