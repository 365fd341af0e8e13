"""Empties a node's spool: by waiting for its node, or, when that does not run, in its place."""

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
from hermes_actors.fallback.spool.measures import SET_ASIDE, SPOOL
from hermes_actors.fallback.spool.opening import open_spool, open_spool_store, spool_folder
from hermes_actors.fallback.spool.reading import SpoolContent, read_spool
from hermes_actors.fallback.spool.spool import Spool
from hermes_actors.metadata.registry import Metadata, Registry
from hermes_actors.telemetry.metrics import Metrics

_POLL_S = 0.2
_TELL_S = 5.0


class _DrainPlan(Struct, frozen=True):
    config: Config
    timeout_s: float
    accepts_damage: bool


def drain_spool(config: Config, timeout_s: float, *, accepts_damage: bool = False) -> None:
    """Return when nothing waits there any more. Raises CommandFailed after the time-out.

    `accepts_damage`: also when acknowledged messages are missing there.
    """
    run_nodes(_drain, _DrainPlan(config, timeout_s, accepts_damage), options={})


async def _drain(plan: _DrainPlan) -> None:
    content = await trio.to_thread.run_sync(read_spool, spool_folder(plan.config))
    if not (content.entries or content.damaged_ranges or content.losses):
        say("nothing waits")
        return
    left = [content.entries]
    with trio.move_on_after(plan.timeout_s) as scope:
        if content.pid:
            _progress(f"the node runs (process {content.pid}) and sends: {content.entries} wait")
            await _wait_for_node(plan.config, content, left)
        else:
            await _send(plan, left)
    if scope.cancelled_caught:
        raise CommandFailed(
            f"{counted(left[0], 'message')} not stored after {plan.timeout_s:g} s; see whether the "
            "log works and the topics are known, and try again, or with a longer --timeout-s"
        )


async def _wait_for_node(config: Config, content: SpoolContent, left: list[int]) -> None:
    folder = spool_folder(config)
    tell_at_s = trio.current_time() + _TELL_S
    while left[0]:
        await trio.sleep(_POLL_S)
        content = await trio.to_thread.run_sync(read_spool, folder)
        left[0] = content.entries
        if left[0] and not content.pid:
            raise CommandFailed(f"the node has stopped while {left[0]} messages wait; try again")
        tell_at_s = _tell(left[0], tell_at_s)
    if content.losses:
        raise CommandFailed(f"nothing else waits any more; {content.damage}")
    say("nothing waits any more")


async def _send(plan: _DrainPlan, left: list[int]) -> None:
    config = plan.config
    metrics = Metrics("hermes_frontend", meanings=SPOOL)
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
                lambda: open_spool_store(
                    config, environment.ids, accepts_damage=plan.accepts_damage
                ),
                config,
                metadata,
                environment.log,
                lambda: list(environment.remote_logs.values()),
                control=control,
                metrics=metrics,
                clock=environment.clock,
                rng=environment.split_rng(),
            )
        )
        if spool is not None:
            await _wait_until_empty(spool, left)
    if spool is not None:
        _tell_result(spool)


async def _wait_until_empty(spool: Spool, left: list[int]) -> None:
    tell_at_s = trio.current_time() + _TELL_S
    while spool.index.entries:
        left[0] = spool.index.entries
        await trio.sleep(_POLL_S)
        tell_at_s = _tell(spool.index.entries, tell_at_s)
    left[0] = 0


def _tell(entries: int, tell_at_s: float) -> float:
    """Say now and then how many are left; when to say so next."""
    now_s = trio.current_time()
    if now_s < tell_at_s or not entries:
        return tell_at_s
    _progress(f"{entries} wait")
    return now_s + _TELL_S


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _tell_result(spool: Spool) -> None:
    stored = counted(int(spool.measures.replayed.value), "message")
    say(f"{stored} stored; nothing waits any more")
    for reason in SET_ASIDE:
        count = spool.measures.set_aside[reason].value
        if count:
            say(f"set aside: {count} {reason}")
