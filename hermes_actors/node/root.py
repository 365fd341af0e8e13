"""The composition root: the supervision tree of one node, read top-down.

`open_node` opens a node without sockets, which the simulation also runs; `listeners.py` adds the
sockets. Indentation shows lifetimes: what is opened first is closed last.

    control (infrastructure: a part that stays broken ends the process)
    ├─ registry <dc>          folds each datacentre's metadata log
    ├─ replicator <dc>        copies that datacentre's changes into the own log
    ├─ webhook                posts each change to a URL, if configured
    ├─ reconciler             creates and changes log topics as the metadata says
    ├─ status reporter        writes this node's status for the others
    ├─ status reader <dc>     folds a datacentre's status records (management)
    ├─ memory                 who holds the messages of the topics in memory
    ├─ workers                processes for slow work with schemas and filters
    ├─ schema registry        asks an external registry for schemas, if configured
    ├─ tracking writer <dc>   writes tracking events to a datacentre's log
    ├─ tracking reader <dc>   reads a datacentre's tracking events into the index (management)
    ├─ spool writer           keeps messages that no log took on the disk
    ├─ replayer               sends them when a log takes them again
    ├─ security               reads users and keys again, if authentication is enabled
    ├─ certificate <listener> reads a listener's certificate again
    ├─ readiness check        asks the log for every topic once, if readiness waits for it
    ├─ metric push            sends the metrics to a collector, if configured
    ├─ router                 keeps one producer for each topic
    ├─ coordination           folds the log that decides who owns what
    ├─ coordination <dc>      folds another datacentre's (management)
    ├─ balancer meter         sums up the nodes' loads, for the metrics
    ├─ membership             joins, sends a heartbeat each half second, leaves
    ├─ leader                 plans who owns what, if no other node leads
    ├─ workloads              knows the subscriptions to own, for the leader
    ├─ releases               appends releases of grants, until the log has them
    ├─ redrives               follows the re-drives of dead letters
    ├─ open letters           counts the open dead letters
    ├─ resting                commits for suspended subscriptions
    ├─ resolver               looks up the recipients of endpoints, if there is a plug-in
    ├─ agent                  runs a consumer for each grant of this node
    │   └─ <subscription>     tenants: back off up to 5 minutes, never give up
    └─ producers
        └─ producer <topic>   tenants
"""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

from hermes_actors.actors.supervisor import open_supervisor
from hermes_actors.config import Config
from hermes_actors.config.checks_security import exposures
from hermes_actors.management.access.accounts import AccountProvider
from hermes_actors.management.access.roles import SecurityProvider
from hermes_actors.management.administration import Administration, ClusterView
from hermes_actors.metadata.measures import metadata_metrics
from hermes_actors.node.balancing import follow_coordinations, open_meter, propose_plan
from hermes_actors.node.consuming import open_consumers
from hermes_actors.node.coordinating import open_coordination
from hermes_actors.node.duties import start_duties
from hermes_actors.node.environment import NodeEnvironment
from hermes_actors.node.measures import loop_metrics
from hermes_actors.node.memory import Memory, open_memory
from hermes_actors.node.metadata import start_metadata
from hermes_actors.node.publishing import open_frontend, publishes_tried
from hermes_actors.node.pulling import open_pull_routes
from hermes_actors.node.reporting import follow_status, open_reporter
from hermes_actors.node.running import Node, log_crash
from hermes_actors.node.schemas import open_schemas
from hermes_actors.node.telemetry import open_telemetry
from hermes_actors.node.tracking import open_tracking, tracking_index
from hermes_actors.node.trying import pushes_tried
from hermes_actors.node.webhook import start_webhook
from hermes_actors.schema.source import CatalogSchemas
from hermes_actors.security.authenticator import Authenticator
from hermes_actors.security.opening import open_authenticator

_logger = logging.getLogger(__name__)


@asynccontextmanager
async def open_node(config: Config, environment: NodeEnvironment) -> AsyncIterator[Node]:
    """Run a node without sockets during the block.

    When the block ends, consumers drain and commit, then producers send their queued messages, then
    everything else stops. When it is cancelled, everything stops at once. Raises
    RestartIntensityExceeded if a part that the node needs stays broken.
    """
    async with open_supervisor(environment.split_rng(), log_crash) as control:
        memory = Memory(config, environment)
        environment = replace(environment, log=memory.log, remote_logs=memory.remote_logs)
        metadata, others = start_metadata(config, environment, control)
        node = Node(
            config,
            metadata,
            environment,
            control,
            CatalogSchemas(metadata.catalog),
            environment.make_pool(),
            metrics=[*environment.metrics, loop_metrics(environment.loop)],
            memory=memory,
        )
        start_duties(node, environment, others)
        await start_webhook(config, environment, metadata, control, node.duties)
        node.metrics.append(metadata_metrics(metadata, node.duties))
        control.start_task("workers", node.pool.run)
        async with AsyncExitStack() as parts:
            node.authenticator = await open_authenticating(node, environment)
            await parts.enter_async_context(open_telemetry(node, environment))
            await parts.enter_async_context(open_schemas(node, environment))
            await parts.enter_async_context(open_memory(memory, metadata, control, node.metrics))
            if "consumers" in config.roles or "management" in config.roles:
                await parts.enter_async_context(open_coordination(node, environment))
                await parts.enter_async_context(open_meter(node))
            if "management" in config.roles:
                node.tracking = tracking_index(node, environment)
                status = follow_status(environment, control)
                pulls = await parts.enter_async_context(open_pull_routes(node, status))
                node.administration = Administration(
                    metadata,
                    environment.log,
                    config,
                    environment.clock,
                    security=security_of_management(node),
                    view=ClusterView(
                        datacenters=tuple(environment.remote_logs),
                        remote_logs=tuple(environment.remote_logs.values()),
                        status=status,
                        tracking=node.tracking,
                        coordinations=follow_coordinations(node, environment),
                        propose_plan=partial(propose_plan, node),
                        spool=lambda: node.spool,
                    ),
                    notices=node.notices,
                    # A frontend replaces the drain.
                    probe=lambda path: node.drain.probe(path),  # noqa: PLW0108
                    ids=environment.ids,
                    pool=node.pool,
                    try_push=pushes_tried(node, environment),
                    ask_owner=pulls.ask,
                    publish=publishes_tried(node),
                    schemas=node.schemas,
                    registry=node.registry,
                )
            await parts.enter_async_context(open_reporter(node, environment))
            await parts.enter_async_context(open_tracking(node, environment))
            if "frontend" in config.roles:
                await parts.enter_async_context(open_frontend(node, environment))
            if "consumers" in config.roles:
                await parts.enter_async_context(open_consumers(node, environment))
            yield node


async def open_authenticating(node: Node, environment: NodeEnvironment) -> Authenticator | None:
    """Open the authentication mechanisms; None if authentication is disabled. Raises
    StartupError.
    """
    config = node.config
    if not (config.frontend.authentication.enabled or config.management.authentication.enabled):
        if fields := config.security.mechanism_fields:
            _logger.warning(
                "authentication is disabled: %s without effect; set "
                "frontend.authentication.enabled or management.authentication.enabled to "
                "true, or remove the mechanisms",
                f"{', '.join(fields)} {'is' if len(fields) == 1 else 'are'}",
            )
        return None
    for exposure in exposures(config):
        _logger.warning("%s", exposure)
    authenticator = await open_authenticator(
        config.security, environment.clock, environment.ids, node.pool
    )
    node.metrics.append(authenticator.metrics)
    for each in authenticator.watched:
        node.follow(each)
    authenticator.start(node.control)
    return authenticator


def security_of_management(node: Node) -> SecurityProvider | None:
    """Return the provider of management's access rules; None: everybody may administer."""
    config = node.config.management.authentication
    if node.authenticator is None or not config.enabled:
        return None
    return AccountProvider(node.authenticator, config)
