"""The publishing part of a node: producers, spool, other datacentres, and the router."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import trio

from hermes_actors.actors.supervisor import Supervisor, open_supervisor
from hermes_actors.errors import Unavailable
from hermes_actors.fallback.measures import FALLBACK
from hermes_actors.fallback.node import Fallback
from hermes_actors.fallback.spool.measures import SPOOL
from hermes_actors.fallback.spool.opening import open_spool
from hermes_actors.management.messages.publish_trials import Publish
from hermes_actors.node.environment import NodeEnvironment
from hermes_actors.node.running import Node, log_crash
from hermes_actors.publisher.frontend import Frontend
from hermes_actors.publisher.measures import PUBLISHING
from hermes_actors.publisher.readiness import ReadinessCheck
from hermes_actors.publisher.within import publish
from hermes_actors.schema.topics import TopicValidations
from hermes_actors.security.account import Credentials
from hermes_actors.telemetry.metrics import Metrics, render_in_turns

_STOP_GRACE_S = 20.0
_ROUTER_GRACE_S = 1.0


@asynccontextmanager
async def open_frontend(node: Node, environment: NodeEnvironment) -> AsyncIterator[None]:
    """Publish during the block; at its end the queued messages are sent."""
    metrics = Metrics(
        "hermes_frontend", environment.clock.monotonic_s, {**PUBLISHING, **FALLBACK, **SPOOL}
    )
    node.metrics.append(metrics)
    async with (
        open_spool(
            environment.open_spool,
            node.config,
            node.metadata,
            environment.log,
            lambda: [
                log
                for dc, log in environment.remote_logs.items()
                if node.metadata.catalog.is_ready(dc)
            ],
            control=node.control,
            metrics=metrics,
            clock=environment.clock,
            rng=environment.split_rng(),
            listeners=node.replayed,
        ) as spool,
        open_supervisor(environment.split_rng(), log_crash) as producers,
        trio.open_nursery() as nursery,
    ):
        node.spool = spool
        _start_readiness_check(node, environment)
        schemas = node.schemas
        frontend = Frontend(
            node.config.frontend,
            environment.log,
            producers,
            metrics,
            environment.clock,
            environment.ids,
            envelope=node.config.log.envelope,
            spool=spool,
            fallback=Fallback(
                node.config.fallback,
                environment.log,
                environment.remote_logs,
                nursery,
                environment.clock,
                environment.split_rng(),
                metrics,
                is_ready=lambda dc: (
                    node.metadata.catalog.is_ready(dc) and not environment.remote_trouble(dc)
                ),
            ),
            authenticator=node.authenticator,
            node=node.config.node,
            dependencies=node.dependencies,
            doubt_about=node.doubt_about,
            schema_of=TopicValidations(
                schemas,
                node.pool,
                frames=node.config.frontend.confluent_framing,
                takes_ids=node.config.frontend.schema_id_header,
            ).of,
            listeners_of=lambda topic: [
                found for listen in node.publish_listeners if (found := listen(topic)) is not None
            ],
            render_all=lambda: render_in_turns(node.metrics),
        )
        node.producers = producers
        node.frontend = frontend
        node.drain = frontend.drain
        nursery.start_soon(frontend.deadlines.run)
        node.control.start_task("router", partial(frontend.routes.follow, node.metadata))
        try:
            yield
        except Exception:
            # The spool and other parts end with this block: the router must not start anything
            # meanwhile.
            with trio.move_on_after(_ROUTER_GRACE_S, shield=True):
                await node.control.stop("router")
            raise
        # Not in a `finally`: a cancelled node stops as if it had been killed.
        with trio.move_on_after(_STOP_GRACE_S):
            await node.control.stop("router")
            await _stop_all(producers)
        nursery.cancel_scope.cancel()


def publishes_tried(node: Node) -> Publish | None:
    """Return the function that publishes a test message; None for a node without a frontend."""
    if "frontend" not in node.config.roles:
        return None

    async def tried(
        topic: str, headers: Sequence[tuple[str, str]], body: bytes, credentials: Credentials
    ) -> tuple[str, int]:
        if node.frontend is None:
            raise Unavailable("This node has not started publishing yet; try again")
        return await publish(node.frontend, topic, headers, body, credentials)

    return tried


def _start_readiness_check(node: Node, environment: NodeEnvironment) -> None:
    config = node.config.frontend.readiness
    if config.check_enabled:
        check = ReadinessCheck(node.metadata, environment.log, config)
        node.control.start_task("readiness check", check.run)
        node.traffic = check.dependencies


async def _stop_all(supervisor: Supervisor) -> None:
    async with trio.open_nursery() as nursery:
        for name in supervisor.statistics():
            nursery.start_soon(supervisor.stop, name)
