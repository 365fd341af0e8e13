"""`hermes node`: one node of a cluster, for production."""

import json
import os
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hermes_actors import config as configuration
from hermes_actors.cli.command_line.options import (
    AcceptDamageOption,
    ReadyJsonOption,
    VerboseOption,
    examples,
)
from hermes_actors.cli.command_line.plain import PlainCommand
from hermes_actors.cli.nodes.logs import log_to
from hermes_actors.cli.nodes.processes import PROCESSES_MAX, arguments_of, run_processes
from hermes_actors.cli.nodes.reloading import reload
from hermes_actors.cli.nodes.serving import environment_of, run_nodes, serve_nodes
from hermes_actors.config import Config
from hermes_actors.listeners import Addresses
from hermes_actors.log.backends import open_logs
from hermes_actors.node import NodeEnvironment
from hermes_actors.runtime.clock import SystemClock


class NodePlan(msgspec.Struct, frozen=True):
    """What to run, and how to announce that it runs."""

    config: Config
    prints_json: bool
    accepts_damage: bool = False
    file: Path | None = None
    is_verbose: bool = False


# As `app` of the other commands; the root command loads it by this name.
node = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")


@node.command(
    cls=PlainCommand,
    epilog=examples(
        "hermes node --config node.toml",
        "HERMES_NODE=dc1-frontend2 hermes node --config frontend.toml",
        "hermes node --config frontend.toml --processes 8",
    ),
)
def run_node(
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A TOML file. Without it: the defaults and HERMES_… variables."
        ),
    ] = None,
    prints_json: ReadyJsonOption = False,
    verbose: VerboseOption = False,
    accepts_damage: AcceptDamageOption = False,
    processes: Annotated[
        int,
        typer.Option(
            min=1,
            max=PROCESSES_MAX,
            help="Run this many nodes, each in a process; they share the publishing port.",
        ),
    ] = 1,
) -> None:
    """Run one node of a cluster, with any of the roles publishing, delivering and management.

    With kafka.clusters in its configuration it stores in Kafka, else in its own embedded
    log (log.directory), which no other process may use. It starts even if Kafka is down:
    /status/ready then says that it is not ready, /status/details why.
    SIGTERM or Ctrl-C drains and stops; a second one stops at once. SIGHUP reads users, keys,
    certificates and the log's level again.

    With --processes N, node-1 to node-N share frontend.port; each adds its number - 1 to every
    other port. They need Kafka. One that ends is started again.
    """
    read = configuration.load(config, os.environ)
    plan = NodePlan(read, prints_json, accepts_damage, config, verbose)
    process = (plan.config.dc, plan.config.node)
    log_to(sys.stderr, plan.config.log, is_verbose=verbose, process=process)
    if processes == 1:
        run_nodes(_run, plan, options={})
        return
    arguments = arguments_of(config, prints_json=prints_json, is_verbose=verbose)
    raise typer.Exit(run_processes(read, arguments, processes))


async def _run(plan: NodePlan) -> None:
    async with AsyncExitStack() as stack:
        environment = await open_environment(plan.config, stack, accepts_damage=plan.accepts_damage)
        await serve_nodes(
            [(plan.config, environment)],
            lambda addresses: _announce(plan, addresses[0]),
            at_hangup=partial(
                reload,
                plan.file,
                plan.config,
                environment.watched,
                is_verbose=plan.is_verbose,
            ),
        )


async def open_environment(
    config: Config, stack: AsyncExitStack, *, accepts_damage: bool = False
) -> NodeEnvironment:
    """Open the node's logs and its other dependencies, until the stack closes.

    `accepts_damage`: open an embedded log even if it has lost messages.
    """
    logs = await stack.enter_async_context(
        open_logs(config, SystemClock(), accepts_damage=accepts_damage)
    )
    return environment_of(config, logs)


def _announce(plan: NodePlan, addresses: Addresses) -> None:
    """Print that the node is running, and its addresses."""
    config = plan.config
    where = msgspec.to_builtins(addresses)
    if plan.prints_json:
        print(json.dumps({"ready": True, "node": config.node, **where}), flush=True)
        return
    del where["dc"]
    listed = ", ".join(f"{name} {url}" for name, url in where.items())
    print(f"{config.dc} {config.node}: {listed}", flush=True)
