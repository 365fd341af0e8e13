"""Runs nodes in this process until a signal, for `hermes dev` and `hermes node`."""

import gc
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TypeVar

import trio

from hermes_actors.actors.supervisor import RestartIntensityExceeded
from hermes_actors.cli.command_line.failures import CommandFailed, first_of
from hermes_actors.cli.nodes.logs import named_node
from hermes_actors.config import Config
from hermes_actors.consumer.opening import open_senders
from hermes_actors.errors import HermesError, StartupError
from hermes_actors.fallback.spool.opening import open_segment_store, spool_folder
from hermes_actors.listeners import Addresses, serve_node
from hermes_actors.log.backends import NodeLogs
from hermes_actors.node import NodeEnvironment
from hermes_actors.publisher.edges.listener import PortUnusable
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import IdSource, SystemClock, system_rng
from hermes_actors.runtime.collecting import long_lived_set_aside
from hermes_actors.runtime.cpu import ProcessCpu
from hermes_actors.runtime.signals import call_on_signal, stop_on_signal
from hermes_actors.runtime.watchdog import STALL_S, LoopWatch, watching
from hermes_actors.telemetry.settings import telemetry_settings

_Plan = TypeVar("_Plan")
_logger = logging.getLogger(__name__)


def run_nodes(
    main: Callable[[_Plan], Awaitable[None]], plan: _Plan, *, options: Mapping[str, str]
) -> None:
    """Run a trio main that serves nodes; raises its failure as one readable error.

    `options`: configuration field → command option, to name the option if a port is in use.
    """
    try:
        guest.run(main, plan)
    except BaseExceptionGroup as group:
        # A node fails inside a nursery, so its error is wrapped.
        raise _only_error(group, options) from group


async def serve_nodes(
    nodes: Sequence[tuple[Config, NodeEnvironment]],
    announce: Callable[[list[Addresses]], None],
    *,
    before_exit: Callable[[], None] = lambda: None,
    at_hangup: Callable[[], Awaitable[None]] | None = None,
    ends_at_usr1: str = "",
    stall_logged_s: float = STALL_S,
) -> None:
    """Serve the nodes until SIGTERM or SIGINT, then drain them; a second signal exits at once.

    SIGUSR1 ends the node `ends_at_usr1` as in a crash, without draining. From SIGUSR2 on, which a
    stop follows, the nodes report that they are not ready.

    `announce` is called with the addresses when all nodes are running, `before_exit` before the
    exit after a second signal, `at_hangup` at each SIGHUP. Stalls of the loop of `stall_logged_s`
    are logged.
    """
    stop, leaving = trio.Event(), trio.Event()
    # One thread runs all nodes.
    loop = LoopWatch()
    async with trio.open_nursery() as signals:

        def begin_drain() -> None:
            stop.set()
            if line := stopping([config for config, _ in nodes]):
                _logger.warning("%s", line)

        await signals.start(partial(stop_on_signal, begin_drain, before_exit=before_exit))

        async def leave_soon() -> None:
            leaving.set()
            _logger.warning("a stop is announced (SIGUSR2): not ready from now on")

        await signals.start(call_on_signal, signal.SIGUSR2, leave_soon)
        if at_hangup is not None:
            await signals.start(call_on_signal, signal.SIGHUP, at_hangup)
        async with AsyncExitStack() as until_end, trio.open_nursery() as serving:
            addresses = []
            for config, found in nodes:
                environment = replace(found, loop=loop)
                life = trio.CancelScope()
                addresses.append(
                    await serving.start(_serve, config, environment, stop, leaving, life)
                )
                if config.node == ends_at_usr1:
                    await signals.start(call_on_signal, signal.SIGUSR1, partial(_end, life))
            # Start-up objects live as long as the process; exclude them from garbage collection.
            gc.collect()
            gc.freeze()
            until_end.enter_context(long_lived_set_aside(SystemClock().monotonic_s))
            if not stop.is_set():
                announce(addresses)
            # Only now, because nothing waits for the loop during start-up.
            now_s = SystemClock().monotonic_s
            until_end.enter_context(watching(loop, now_s, signals, stall_logged_s))
        signals.cancel_scope.cancel()


async def _end(life: trio.CancelScope) -> None:
    life.cancel()


def environment_of(config: Config, logs: NodeLogs) -> NodeEnvironment:
    """Return a node's environment with these logs."""
    return NodeEnvironment(
        clock=SystemClock(),
        ids=IdSource(),
        rng=system_rng(),
        log=logs.own,
        remote_logs=logs.remote,
        open_senders=partial(open_senders, config.consumers),
        cpu=ProcessCpu(config.consumers.balancer.cores),
        metrics=(logs.metrics,),
        log_trouble=logs.trouble,
        remote_trouble=logs.remote_trouble,
        lost=logs.lost,
        open_spool=lambda: open_segment_store(spool_folder(config), config.spool.disk_bytes_max),
        telemetry=telemetry_settings(os.environ),
    )


def stopping(configs: Sequence[Config]) -> str:
    """Return the text to print when these nodes begin to stop: why that takes long. Empty if it
    does not.
    """
    waits_ms = [
        each.frontend.graceful_shutdown_initial_wait_ms
        for each in configs
        if "frontend" in each.roles
    ]
    if not any(waits_ms):
        return ""
    return (
        f"stopping; publishes are accepted for another {max(waits_ms) / 1_000:g} s so that load "
        "balancers notice "
        "(frontend.graceful_shutdown_initial_wait_ms), then open requests finish; a second "
        "signal stops at once"
    )


async def _serve(
    config: Config,
    environment: NodeEnvironment,
    stop: trio.Event,
    leaving: trio.Event,
    life: trio.CancelScope,
    *,
    task_status: trio.TaskStatus[Addresses],
) -> None:
    with named_node(config.dc, config.node), life:
        await serve_node(config, environment, stop, leaving=leaving, task_status=task_status)


def _only_error(
    group: BaseExceptionGroup[BaseException], options: Mapping[str, str]
) -> BaseException:
    """Return the one error to show, or the group if it contains an unexpected error."""
    first = first_of(group)
    if isinstance(first, PortUnusable) and first.field in options:
        return CommandFailed(f"{first.message} with {options[first.field]}")
    if isinstance(first, RestartIntensityExceeded) and isinstance(first.__cause__, StartupError):
        return first.__cause__
    if isinstance(first, RestartIntensityExceeded):
        return CommandFailed(f"the node cannot continue: {first}")
    if isinstance(first, HermesError | KeyboardInterrupt):
        return first
    return group
