"""The configuration that a run's nodes share: the defaults, or bounds so tight that all are met."""

import random

from hermes_actors.config import Config, ConsumersConfig, FrontendConfig, ManagementConfig

_TIGHT_RATE = 0.5


def draw_config(rng: random.Random) -> Config:
    """The configuration of a run, without what differs from node to node."""
    is_tight = rng.random() < _TIGHT_RATE
    return Config(
        frontend=_frontend(rng, is_tight),
        consumers=_consumers(rng) if is_tight else ConsumersConfig(),
        management=ManagementConfig(topic_partitions=rng.randint(1, 3), allow_removal=True),
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
        # Not smaller: what it holds up is looked at once for each commit interval only.
        unsettled_span_max=rng.randint(20, 60),
        read_batch_records_max=rng.randint(1, 5),
        read_batch_bytes_max=rng.choice((1, 10_000)),
    )
