from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from os import getpid
from typing import Any

import pytest

from hermes_actors.config import KafkaClusterConfig, KafkaConfig
from hermes_actors.log.kafka.log import KafkaLog, open_kafka_log
from hermes_actors.runtime.clock import SystemClock

_names = count()


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """A name that no other test of this run has."""
    number = next(_names)
    return lambda name: f"log-{getpid()}-{number}-{name}"


@pytest.fixture
def open_log() -> Callable[..., AbstractAsyncContextManager[KafkaLog]]:
    """`open_log(bootstrap_servers, **settings)`: the log over a broker."""

    @asynccontextmanager
    async def open_one(servers: list[str], **settings: Any) -> AsyncIterator[KafkaLog]:
        settings = {"request_timeout_ms": 20_000, **settings}
        cluster = KafkaClusterConfig(list(servers))
        async with open_kafka_log("dc1", cluster, KafkaConfig(**settings), SystemClock()) as log:
            yield log

    return open_one
