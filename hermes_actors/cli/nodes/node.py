"""`hermes node`: one node of a cluster, as production runs it."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hermes_actors import config as configuration
from hermes_actors.cli.command_line.options import AcceptDamageOption, examples
from hermes_actors.cli.command_line.plain import PlainCommand
from hermes_actors.cli.nodes.logs import log_to
from hermes_actors.cli.nodes.serving import (
    run_nodes,
    serve_nodes,
)
from hermes_actors.config import Config
from hermes_actors.consumer.senders.opening import open_senders
from hermes_actors.fallback.spool.opening import open_spool_store
from hermes_actors.listeners import Addresses
from hermes_actors.log.base import Log
from hermes_actors.log.embedded import open_embedded_log
from hermes_actors.log.kafka.log import KafkaLog, open_kafka_log
from hermes_actors.log.measures import embedded_log_metrics, kafka_log_metrics
from hermes_actors.node import NodeEnvironment
from hermes_actors.runtime.clock import IdSource, SystemClock, system_rng
from hermes_actors.runtime.cpu import ProcessCpu
from hermes_actors.telemetry.metrics import Metrics


class NodePlan(msgspec.Struct, frozen=True):
    """The plan of a node's run: what to run, and how to say that it runs."""

    config: Config
    prints_json: bool
    accepts_damage: bool = False


# As the other commands' `app`; the root command loads it by this name.
node = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")


@node.command(
    cls=PlainCommand,
    epilog=examples(
        "hermes node --config node.toml",
        "HERMES_NODE=dc1-frontend2 hermes node --config frontend.toml",
    ),
)
def run_node(
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A TOML file. Without it: the defaults and HERMES_… variables."
        ),
    ] = None,
    prints_json: Annotated[
        bool, typer.Option("--json", help="When ready, print one JSON line with all URLs.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log discarded messages too, with the reason.")
    ] = False,
    accepts_damage: AcceptDamageOption = False,
) -> None:
    """Run one node of a cluster: publishing, delivering, management, or any of them.

    With kafka.clusters in its configuration it stores in Kafka, else in an embedded log of its
    own (log.directory), which no other process may use. It starts also while Kafka is down:
    /status/ready says that it is not ready, /status/details why.
    SIGTERM or Ctrl-C drains and stops; a second one stops at once.
    """
    plan = NodePlan(configuration.load(config, os.environ), prints_json, accepts_damage)
    process = (plan.config.dc, plan.config.node)
    log_to(sys.stderr, plan.config.log, is_verbose=verbose, process=process)
    run_nodes(_run, plan, options={})


async def _run(plan: NodePlan) -> None:
    async with AsyncExitStack() as stack:
        environment = await open_environment(plan.config, stack, accepts_damage=plan.accepts_damage)
        await serve_nodes(
            [(plan.config, environment)], lambda addresses: _announce(plan, addresses[0])
        )


async def open_environment(
    config: Config, stack: AsyncExitStack, *, accepts_damage: bool = False
) -> NodeEnvironment:
    """The node's logs and all that it finds around it, open until the stack closes.

    `accepts_damage`: an embedded log or a spool that has lost messages is opened all the same.
    """
    if config.kafka.clusters:
        return await _on_kafka(config, stack, accepts_damage=accepts_damage)
    return await _on_embedded_log(config, stack, accepts_damage=accepts_damage)


async def _on_kafka(
    config: Config, stack: AsyncExitStack, *, accepts_damage: bool
) -> NodeEnvironment:
    clock = SystemClock()
    logs: dict[str, KafkaLog] = {
        dc: await stack.enter_async_context(open_kafka_log(dc, cluster, config.kafka, clock))
        for dc, cluster in config.kafka.clusters.items()
    }
    own = logs.pop(config.dc)
    return _environment(
        config,
        own,
        logs,
        metrics=kafka_log_metrics(own),
        log_trouble=lambda: own.statistics().reason,
        remote_trouble=lambda dc: logs[dc].statistics().reason,
        accepts_damage=accepts_damage,
    )


async def _on_embedded_log(
    config: Config, stack: AsyncExitStack, *, accepts_damage: bool
) -> NodeEnvironment:
    log = await stack.enter_async_context(
        open_embedded_log(
            Path(config.log.directory),
            config.dc,
            SystemClock(),
            retention_check_interval_ms=config.log.retention_check_interval_ms,
            accepts_damage=accepts_damage,
        )
    )
    return _environment(
        config,
        log,
        {},
        metrics=embedded_log_metrics(log),
        log_trouble=lambda: log.trouble,
        lost=lambda: log.trouble,
        accepts_damage=accepts_damage,
    )


def _environment(
    config: Config,
    log: Log,
    remote_logs: Mapping[str, Log],
    *,
    metrics: Metrics,
    log_trouble: Callable[[], str] = str,
    remote_trouble: Callable[[str], str] = lambda _dc: "",
    lost: Callable[[], str] = str,
    accepts_damage: bool,
) -> NodeEnvironment:
    return NodeEnvironment(
        clock=SystemClock(),
        ids=IdSource(),
        rng=system_rng(),
        log=log,
        remote_logs=remote_logs,
        open_senders=partial(open_senders, config.consumers),
        cpu=ProcessCpu(config.consumers.balancer.cores),
        metrics=(metrics,),
        log_trouble=log_trouble,
        remote_trouble=remote_trouble,
        lost=lost,
        open_spool=lambda: open_spool_store(config, IdSource(), accepts_damage=accepts_damage),
    )


def _announce(plan: NodePlan, addresses: Addresses) -> None:
    """Say that the node does its work, and where."""
    config = plan.config
    where = msgspec.to_builtins(addresses)
    if plan.prints_json:
        print(json.dumps({"ready": True, "node": config.node, **where}), flush=True)
        return
    del where["dc"]
    listed = ", ".join(f"{name} {url}" for name, url in where.items())
    print(f"{config.dc} {config.node}: {listed}", flush=True)
