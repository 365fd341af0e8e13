"""A whole node's environment in memory, without faults."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from hermes_actors.consumer.senders.sender import Done, Push, Sender
from hermes_actors.log.base import Log
from hermes_actors.management.access.roles import Anonymous
from hermes_actors.management.administration import Administration
from hermes_actors.node import NodeEnvironment
from hermes_actors.runtime.clock import Clock, seeded_ids
from hermes_actors.runtime.cpu import StillCpu
from hermes_actors.runtime.threads import NoThreads
from hermes_actors.runtime.workers import InlinePool
from hermes_chaos.wanted import subscription_body, topic_body


class _Nobody(Sender):
    """A sender that must not be used."""

    def send(self, push: Push, done: Done) -> None:
        raise AssertionError(f"there is nobody to take a push of {push.route.subscription}")


def surroundings(
    clock: Clock, log: Log, *remotes: Log, seed: int = 1, sender: Sender | None = None
) -> NodeEnvironment:
    """The environment of a node with this log of its datacentre and those of the others.

    All pushes go to `sender`; without one the node must have nothing to push.
    """

    @asynccontextmanager
    async def open_senders(*_: object) -> AsyncIterator[Callable[[object], Sender]]:
        yield lambda _live: sender or _Nobody()

    return NodeEnvironment(
        clock=clock,
        ids=seeded_ids(random.Random(seed)),  # noqa: S311 -- repeats itself
        rng=random.Random(seed + 1),  # noqa: S311 -- repeats itself
        log=log,
        remote_logs={remote.dc: remote for remote in remotes},
        open_senders=open_senders,
        cpu=StillCpu(),
        threads=NoThreads(),
        make_pool=InlinePool,
    )


async def create_shop(administration: Administration, endpoint: str, **fields: Any) -> None:
    """Create group shop, topic shop.orders and its subscription billing with these fields."""
    caller = Anonymous()
    await administration.groups.create(caller, {"groupName": "shop"})
    await administration.topics.create(caller, topic_body("shop.orders"))
    subscription = subscription_body("shop.orders", "billing", endpoint, **fields)
    await administration.subscriptions.create(caller, "shop.orders", subscription)
