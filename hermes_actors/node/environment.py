"""The environment of a node: clocks, logs, and the factories of its senders and its spool."""

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from hermes_actors.balancer.usage import NodeCpu
from hermes_actors.config.schema import SchemaConfig
from hermes_actors.consumer.senders.oauth.sender import ProviderOf
from hermes_actors.consumer.senders.sender import Sender
from hermes_actors.fallback.spool.opening import OpenStore
from hermes_actors.log.base import Log
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.runtime.clock import Clock, IdSource
from hermes_actors.runtime.cpu import ProcessCpu
from hermes_actors.runtime.threads import SystemThreads, Threads
from hermes_actors.runtime.watchdog import LoopWatch
from hermes_actors.runtime.workers import WorkerPool
from hermes_actors.schema.client import RegistryClient
from hermes_actors.security.watched import Watched
from hermes_actors.telemetry.metrics import Metrics
from hermes_actors.telemetry.settings import TelemetrySettings

SenderOf = Callable[[LiveSubscription], Sender]


@dataclass(frozen=True)
class NodeEnvironment:
    """What a node gets from outside.

    `open_senders` opens the senders for the life of the node; its arguments are the look-up of
    OAuth providers and the metrics to count in. `metrics` (those of the log) are shown with the
    node's own. `log_trouble` says why the own log cannot be used now (empty string if it can);
    `remote_trouble` says the same of another datacentre's log. `lost` says why the own log stores
    nothing until the node is restarted. `open_spool` opens the store for messages that no log
    takes; None: they are refused. `cpu` measures the CPU, `threads` runs work that would block the
    loop, and `make_pool` makes the workers for work that needs a hard limit. `ask_registry` makes
    the client of an external schema registry. `telemetry` says what is traced and pushed. `loop`
    measures how late the event loop is. `watched` is read again while the node runs.
    """

    clock: Clock
    ids: IdSource
    rng: random.Random
    log: Log
    remote_logs: Mapping[str, Log]
    open_senders: Callable[[ProviderOf, Metrics], AbstractAsyncContextManager[SenderOf]]
    metrics: Sequence[Metrics] = ()
    log_trouble: Callable[[], str] = str
    remote_trouble: Callable[[str], str] = lambda _dc: ""
    lost: Callable[[], str] = str
    open_spool: OpenStore | None = None
    cpu: NodeCpu = field(default_factory=ProcessCpu)
    loop: LoopWatch = field(default_factory=LoopWatch)
    threads: Threads = field(default_factory=SystemThreads)
    make_pool: Callable[[], WorkerPool] = WorkerPool
    ask_registry: Callable[[SchemaConfig], RegistryClient] = RegistryClient
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    watched: list[Watched[Any]] = field(default_factory=list)

    def split_rng(self) -> random.Random:
        """A separate generator for one part, so that its draws do not affect other parts."""
        return random.Random(self.rng.getrandbits(64))  # noqa: S311 -- jitter, not secrets
