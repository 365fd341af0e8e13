"""The parts that all topics of a node share when they publish to several datacentres."""

import random
from collections.abc import Callable, Mapping, Sequence

import trio

from hermes_actors.config import ConfigError
from hermes_actors.config.fallback import FallbackConfig
from hermes_actors.fallback.account import Losers
from hermes_actors.fallback.measures import FallbackMeasures
from hermes_actors.fallback.remotes import Datacentre
from hermes_actors.log.base import Log
from hermes_actors.runtime.clock import Clock
from hermes_actors.telemetry.metrics import Metrics


class Fallback:
    """The own datacentre, the others in the order to ask them, and what runs on between them.

    `nursery` outlives the topics' producers: appends that nobody waits for end in it. `is_ready`
    tells whether a datacentre may be used, and is asked before each use. Raises ConfigError for a
    remote that is configured and not there.
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
        self.measures = FallbackMeasures(metrics)
        self.losers = Losers(
            config.losers_max, config.losers_bytes_max, self.measures.losers_cancelled
        )
        others = in_order(config.remotes, [dc for dc in remote_logs if dc != log.dc])
        self.local, *self.remotes = [
            Datacentre(each, config, rng, self.measures, is_ready)
            for each in (log, *(remote_logs[dc] for dc in others))
        ]
        self.measures.watch(
            self.losers, lambda ack: self.local.delay(ack).delay_s(clock.monotonic_s())
        )


def in_order(configured: Sequence[str], known: Sequence[str]) -> list[str]:
    """The remotes as configured, else all that are known, by name. Raises ConfigError."""
    for dc in configured:
        if dc not in known:
            others = ", ".join(sorted(known)) or "none"
            raise ConfigError(
                f"fallback.remotes: '{dc}' is no other datacentre of this node; there are: {others}"
            )
    return list(dict.fromkeys(configured)) or sorted(known)
