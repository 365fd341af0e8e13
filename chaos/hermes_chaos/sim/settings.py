"""The configuration of a run's nodes: the defaults, or bounds so tight that all are reached."""

import random

from msgspec.structs import replace

from hermes_actors.config import (
    BalancerConfig,
    Config,
    ConsumersConfig,
    FallbackConfig,
    FrontendConfig,
    ManagementConfig,
    SpoolConfig,
)
from hermes_chaos.sim.workload.plans import ALL_TOPICS

_TIGHT_RATE = 0.5
_NO_SPOOL_RATE = 0.1
_ROOMY_BYTES = 50_000_000


def draw_config(rng: random.Random) -> Config:
    """The configuration of a run, without what differs between nodes."""
    is_tight = rng.random() < _TIGHT_RATE
    return Config(
        frontend=_frontend(rng, is_tight),
        consumers=replace(
            _consumers(rng) if is_tight else ConsumersConfig(), balancer=_balancer(rng)
        ),
        management=ManagementConfig(topic_partitions=rng.randint(1, 3), allow_removal=True),
        fallback=_fallback(rng) if is_tight else FallbackConfig(),
        spool=_spool(rng, is_tight),
    )


def spooled_topics(config: Config) -> frozenset[str]:
    """The topics whose messages a node's disk accepts whenever no log does."""
    spool = config.spool
    if not spool.enabled or spool.disk_bytes_max < _ROOMY_BYTES:
        return frozenset()
    return frozenset(
        topic.name for topic in ALL_TOPICS if spool.for_fallback_topics or not topic.falls_back
    )


def _frontend(rng: random.Random, is_tight: bool) -> FrontendConfig:
    return FrontendConfig(
        graceful_shutdown_initial_wait_ms=100,
        graceful_shutdown_drain_ms=2_000,
        waiting_per_topic_max=rng.randint(2, 10) if is_tight else 10_000,
        batch_records_max=rng.randint(1, 5) if is_tight else 1_000,
        batch_bytes_max=rng.choice((1_000, 30_000)) if is_tight else 1_000_000,
    )


def _consumers(rng: random.Random) -> ConsumersConfig:
    inflight_max = rng.randint(1, 4)
    return ConsumersConfig(
        inflight_max=inflight_max,
        waiting_retries_max=rng.randint(1, 5),
        buffered_bytes_max=rng.choice((1, 5_000, 50_000)),
        # Not smaller: messages held up by it are reconsidered only once per commit interval.
        unsettled_span_max=rng.randint(20, 60),
        read_batch_records_max=rng.randint(1, 5),
        read_batch_bytes_max=rng.choice((1, 10_000)),
    )


def _balancer(rng: random.Random) -> BalancerConfig:
    return BalancerConfig(
        cores=rng.choice((1.0, 2.0)),
        consumers_per_subscription=rng.choice((1, 2, 2, 3)),
        interval_ms=rng.choice((1_000, 1_500)),
        stabilization_window_ms=rng.choice((2_000, 1_800_000)),
    )


def _fallback(rng: random.Random) -> FallbackConfig:
    return FallbackConfig(
        hedge_mode=rng.choice(("adaptive", "fixed")),
        hedge_floor_delay_ms=rng.choice((5, 20)),
        hedge_budget_percent=rng.choice((1, 5)),
        hedge_burst_max=rng.randint(1, 2),
        rescue_before_limit_ms=120 + rng.randint(20, 50),
    )


def _spool(rng: random.Random, is_tight: bool) -> SpoolConfig:
    is_enabled = rng.random() >= _NO_SPOOL_RATE
    for_fallback = rng.random() < _TIGHT_RATE
    if not is_tight:
        return SpoolConfig(enabled=is_enabled, for_fallback_topics=for_fallback)
    return SpoolConfig(
        enabled=is_enabled,
        for_fallback_topics=for_fallback,
        disk_bytes_max=rng.choice((100_000, _ROOMY_BYTES)),
    )
