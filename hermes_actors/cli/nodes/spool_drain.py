"""Empties a node's spool: waits for the node, or sends the messages itself if the node is down."""

import sys
from contextlib import AsyncExitStack

import trio
from msgspec import Struct

from hermes_actors.actors.supervisor import open_supervisor
from hermes_actors.cli.command_line.failures import CommandFailed
from hermes_actors.cli.nodes.node import open_environment
from hermes_actors.cli.nodes.serving import run_nodes
from hermes_actors.cli.output.render import counted, say
from hermes_actors.config import Config
from hermes_actors.fallback.spool.measures import SPOOL
from hermes_actors.fallback.spool.opening import open_spool, spool_folder
from hermes_actors.fallback.spool.reading import read_spool
from hermes_actors.metadata.registry import Metadata, Registry
from hermes_actors.telemetry.metrics import Metrics

_POLL_S = 0.2


class _DrainPlan(Struct):
    """`left` is the number of messages at the last count."""

    config: Config
    timeout_s: float
    accepts_damage: bool
    left: int = 0


def drain_spool(config: Config, timeout_s: float, *, accepts_damage: bool = False) -> None:
    """Return when the spool is empty. Raises CommandFailed after the timeout.

    `accepts_damage`: open the node's embedded log even if it has lost messages.
    """
    run_nodes(_drain, _DrainPlan(config, timeout_s, accepts_damage), options={})


async def _drain(plan: _DrainPlan) -> None:
    content = await trio.to_thread.run_sync(read_spool, spool_folder(plan.config))
    plan.left = content.entries
    if not plan.left:
        say("the spool is empty")
        return
    with trio.move_on_after(plan.timeout_s) as scope:
        if content.pid:
            print(
                f"the node runs (process {content.pid}) and is sending; left: {plan.left}",
                file=sys.stderr,
                flush=True,
            )
            await _wait_for_node(plan)
        else:
            await _send(plan)
    if scope.cancelled_caught:
        raise CommandFailed(
            f"{counted(plan.left, 'message')} not stored after {plan.timeout_s:g} s; check that "
            "the log works and the topics exist, then try again, if necessary with a longer "
            "--timeout-s"
        )


async def _wait_for_node(plan: _DrainPlan) -> None:
    while plan.left:
        await trio.sleep(_POLL_S)
        content = await trio.to_thread.run_sync(read_spool, spool_folder(plan.config))
        plan.left = content.entries
        if plan.left and not content.pid:
            raise CommandFailed(f"the node has stopped with {plan.left} messages left; try again")
    say("the spool is empty")


async def _send(plan: _DrainPlan) -> None:
    """Send the spooled messages from this process."""
    config = plan.config
    async with AsyncExitStack() as stack:
        environment = await open_environment(config, stack, accepts_damage=plan.accepts_damage)
        control = await stack.enter_async_context(open_supervisor(environment.split_rng()))
        metadata = Metadata(
            environment.log,
            clock=environment.clock,
            ids=environment.ids,
            rng=environment.split_rng(),
        )
        control.start_task("registry", lambda stop: Registry(metadata).run(stop))
        spool = await stack.enter_async_context(
            open_spool(
                environment.open_spool,
                config,
                metadata,
                environment.log,
                lambda: list(environment.remote_logs.values()),
                control=control,
                metrics=Metrics("hermes_frontend", meanings=SPOOL),
                clock=environment.clock,
                rng=environment.split_rng(),
            )
        )
        if spool is None:
            return
        while plan.left:
            await trio.sleep(_POLL_S)
            plan.left = spool.index.entries
    measures = spool.measures
    say(f"{counted(int(measures.replayed.value), 'message')} stored; the spool is empty")
    for reason, counter in measures.set_aside.items():
        if counter.value:
            say(f"set aside: {counter.value:g} {reason}")
