"""Empties a node's spool: waits for the node, or sends the messages itself if the node is down."""

import os
import signal
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import trio
from msgspec import Struct

from hermes_actors.actors.supervisor import open_supervisor
from hermes_actors.cli.command_line.failures import CommandFailed
from hermes_actors.cli.doctor.findings import OK
from hermes_actors.cli.doctor.kafka import look_at_kafka
from hermes_actors.cli.nodes.node import open_environment
from hermes_actors.cli.nodes.serving import run_nodes
from hermes_actors.cli.output.render import counted, say, span
from hermes_actors.config import Config
from hermes_actors.errors import HermesError
from hermes_actors.fallback.spool.disk import LOCK_NAME
from hermes_actors.fallback.spool.measures import SPOOL
from hermes_actors.fallback.spool.opening import open_spool, spool_folder
from hermes_actors.fallback.spool.reading import SpoolContent, read_spool
from hermes_actors.metadata.registry import Metadata, Registry
from hermes_actors.runtime.clock import SystemClock
from hermes_actors.telemetry.metrics import Metrics

_POLL_S = 0.2
_READING_SHARE = 0.2
"""A full spool takes seconds to read; the node needs the disk and the CPU too."""
_SURVEY_S = 5.0
_TOPICS_NAMED_MAX = 5


class DrainPlan(Struct, frozen=True):
    """How to empty a spool. `stops`: the node is about to stop, so it takes no new traffic.
    `accepts_damage`: open the node's embedded log even if it has lost messages.
    """

    config: Config
    timeout_s: float
    stops: bool = False
    accepts_damage: bool = False

    async def content(self) -> SpoolContent:
        """Read the spool."""
        return await trio.to_thread.run_sync(read_spool, spool_folder(self.config))


def drain_spool(plan: DrainPlan) -> None:
    """Return when the spool is empty. Raises CommandFailed after the timeout, or if messages of a
    newer version stay.
    """
    # Another `drain --wait` takes this process for the node while it holds the spool.
    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        run_nodes(_drain, plan, options={})
    finally:
        signal.signal(signal.SIGUSR2, before)
    if unknown := read_spool(spool_folder(plan.config)).unknown:
        raise CommandFailed(
            f"{counted(unknown, 'message')} of a newer version stay in "
            f"{spool_folder(plan.config)}; that version must send them"
        )


async def _drain(plan: DrainPlan) -> None:
    content = await plan.content()
    if plan.stops and content.pid:
        _announce(content)
    if not content.entries:
        say("the spool is empty")
        return
    with trio.move_on_after(plan.timeout_s) as scope:
        if content.pid:
            print(
                f"the node runs (process {content.pid}) and is sending; left: {content.entries}",
                file=sys.stderr,
                flush=True,
            )
            await _wait_for_node(plan)
        else:
            await _send(plan)
    if scope.cancelled_caught:
        raise CommandFailed(_left(await plan.content(), plan) + await _why(plan.config))


def _announce(content: SpoolContent) -> None:
    """Make the node report that it is not ready, and close connections after their answers."""
    lock = (Path(content.folder) / LOCK_NAME).resolve()
    with suppress(OSError):
        # The pid may be that of another container; a stranger would not survive the signal.
        files = Path(f"/proc/{content.pid}/fd").iterdir()
        if any(file.readlink() == lock for file in files):
            os.kill(int(content.pid), signal.SIGUSR2)
            return
    print(
        f"process {content.pid}, which uses the spool, is not in reach: it stays ready",
        file=sys.stderr,
        flush=True,
    )


def _left(content: SpoolContent, plan: DrainPlan) -> str:
    """Return what is left in the spool and where, in one sentence."""
    topics = [f"{each.topic} {each.entries}" for each in content.topics[:_TOPICS_NAMED_MAX]]
    if more := len(content.topics) - len(topics):
        topics.append(f"{counted(more, 'more topic')}")
    now_ms = SystemClock().now_ms()
    age = span((now_ms - (content.oldest_ms or now_ms)) / 1_000)
    return (
        f"{counted(content.entries, 'message')} ({content.size_bytes} bytes, the oldest {age} "
        f"old: {', '.join(topics)}) stay in {content.folder}; the log of {plan.config.dc} did not "
        f"accept them within {plan.timeout_s:g} s"
    )


async def _why(config: Config) -> str:
    """Return why the own log takes nothing, as far as that shows from here."""
    if config.dc not in config.kafka.clusters:
        return "; the node's log says why"
    try:
        found = await look_at_kafka(config, config.dc, SystemClock(), _SURVEY_S)
    except HermesError as error:
        return f"; {error.message}"
    seen = [f"{each.about}: {each.seen}" for each in found if each.grade != OK]
    return "; " + ("; ".join(seen) or "Kafka works now: check that the topics exist, and try again")


async def _wait_for_node(plan: DrainPlan) -> None:
    took_s = 0.0
    while True:
        await trio.sleep(max(_POLL_S, took_s / _READING_SHARE))
        began_s = trio.current_time()
        content = await plan.content()
        took_s = trio.current_time() - began_s
        if not content.entries:
            say("the spool is empty")
            return
        if not content.pid:
            raise CommandFailed(
                f"the node has stopped with {content.entries} messages left; try again"
            )


async def _send(plan: DrainPlan) -> None:
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
        # Five looks a second cost less than an event for each entry.
        while spool.index.entries:  # noqa: ASYNC110
            await trio.sleep(_POLL_S)
    measures = spool.measures
    say(f"{counted(int(measures.replayed.value), 'message')} stored; the spool is empty")
    for reason, counter in measures.set_aside.items():
        if counter.value:
            say(f"set aside: {counter.value:g} {reason}")
