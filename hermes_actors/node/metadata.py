"""The metadata of a node: the logs that it folds, and its tasks for its whole datacentre."""

from collections.abc import Callable
from typing import Protocol

import trio

from hermes_actors.actors.supervisor import Supervisor
from hermes_actors.config import Config
from hermes_actors.log.base import Log
from hermes_actors.metadata.reconciler import TopicReconciler
from hermes_actors.metadata.registry import Metadata, Registry
from hermes_actors.metadata.replication import Replicator
from hermes_actors.metadata.trail import ENTRIES_MAX
from hermes_actors.node.environment import NodeEnvironment


class _Duty(Protocol):
    """A task for the whole datacentre; `trouble` says why it makes no progress."""

    trouble: str

    async def run(self, stop: trio.Event) -> None:
        """Work until asked to stop."""


def start_metadata(
    config: Config, environment: NodeEnvironment, control: Supervisor
) -> tuple[Metadata, dict[str, Callable[[], str]]]:
    """Fold the own metadata log and those of the other datacentres, which are stand-ins and show
    what may be deleted. Also start the tasks for the datacentre, if this node is responsible.
    Returns the own metadata, and by task a function that returns its trouble.
    """

    def follow(log: Log, standins: tuple[Metadata, ...], entries_max: int) -> Metadata:
        metadata = Metadata(
            log,
            clock=environment.clock,
            ids=environment.ids,
            rng=environment.split_rng(),
            node=config.node,
            standins=standins,
            entries_max=entries_max,
        )
        control.start_task(f"registry {log.dc}", lambda stop: Registry(metadata).run(stop))
        return metadata

    others = {dc: follow(log, (), 0) for dc, log in environment.remote_logs.items()}
    audited = ENTRIES_MAX if "management" in config.roles else 0
    own = follow(environment.log, tuple(others.values()), audited)
    duties: dict[str, Callable[[], str]] = {}

    def start_duty(name: str, make: Callable[[], _Duty]) -> None:
        async def run(stop: trio.Event) -> None:
            duty = make()
            duties[name] = lambda: duty.trouble
            await duty.run(stop)

        duties[name] = str
        control.start_task(name, run)

    if config.metadata.replicator in ("", config.node):
        for dc, log in environment.remote_logs.items():
            start_duty(f"replicator {dc}", _replicator(config, environment, log, own))
        start_duty(
            "reconciler",
            lambda: TopicReconciler(
                own, others, config, clock=environment.clock, rng=environment.split_rng()
            ),
        )
    return own, duties


def _replicator(
    config: Config, environment: NodeEnvironment, source: Log, own: Metadata
) -> Callable[[], Replicator]:
    return lambda: Replicator(
        source,
        own,
        clock=environment.clock,
        rng=environment.split_rng(),
        digest_interval_s=config.metadata.digest_interval_ms / 1_000,
    )
