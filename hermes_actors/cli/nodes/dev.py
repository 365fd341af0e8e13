"""`hermes dev`: a whole cluster in one process; each datacentre has a node and an embedded log."""

import json
import logging
import os
import select
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import trio
import typer

from hermes_actors import config as configuration
from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.cli.command_line.options import (
    AcceptDamageOption,
    ReadyJsonOption,
    VerboseOption,
    examples,
)
from hermes_actors.cli.command_line.plain import PlainCommand
from hermes_actors.cli.nodes.logs import log_to
from hermes_actors.cli.nodes.serving import environment_of, run_nodes, serve_nodes
from hermes_actors.config import Config, FrontendConfig, GrpcConfig, ManagementConfig
from hermes_actors.listeners import Addresses
from hermes_actors.log.backends import embedded_logs
from hermes_actors.log.embedded.log import open_embedded_log
from hermes_actors.model.names import is_name_part
from hermes_actors.runtime.clock import SystemClock

DEV_DEFAULTS: dict[str, dict[str, Any]] = {
    "frontend": {
        # A laptop that also builds and tests is slower than a server.
        "idle_timeout_ms": 2_000,
        "long_idle_timeout_ms": 2_000,
        "max_publish_request_duration_ms": 2_000,
        "read_timeout_ms": 2_000,
        "replay": True,
        # No load balancer checks a laptop's health.
        "graceful_shutdown_initial_wait_ms": 0,
    },
    # Subscribers are on the same laptop.
    "consumers": {"endpoints": {"allow_loopback": True}},
    "management": {"allow_removal": True, "topic_partitions": 4},
    "metadata": {"topic_data_deletion_delay_ms": 60_000},
}
"""The differences from a production node's defaults. A --config file and HERMES_… variables
override them."""

_logger = logging.getLogger(__name__)
_Listener = TypeVar("_Listener", FrontendConfig, ManagementConfig)
_PORT_OPTIONS = {"frontend.port": "--publish-port", "management.port": "--management-port"}


class DevPlan(msgspec.Struct, frozen=True):
    """One configuration for each datacentre, and the data folder (None: a temporary one).

    `more` are additional nodes that only deliver.
    """

    nodes: list[Config]
    data: Path | None
    prints_json: bool
    more: list[Config] = []
    accepts_damage: bool = False

    def consumers(self, dc: str) -> list[str]:
        """Return the names of the nodes that deliver in a datacentre."""
        nodes = [*self.nodes, *self.more]
        return [each.node for each in nodes if each.dc == dc and "consumers" in each.roles]


def _port(default: str) -> Any:
    return typer.Option(
        min=0,
        max=65_535,
        metavar="PORT",
        help="Port of the first DC; the others count up. 0: any free ports.",
        show_default=default,
    )


# As `app` of the other commands; the root command loads it by this name.
dev = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")


@dev.command(cls=PlainCommand, epilog=examples("hermes dev", "hermes dev --json --ephemeral"))
def run_dev(
    dcs: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Separated by commas; without it dc1,dc2."),
    ] = None,
    publish_port: Annotated[int | None, _port("frontend.port, 8080")] = None,
    management_port: Annotated[int | None, _port("management.port, 8090")] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for the data. Without it: a temporary one."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A TOML file for every node.")
    ] = None,
    consumers: Annotated[
        int,
        typer.Option(
            min=1,
            max=9,
            metavar="N",
            help="Consuming nodes in each DC; all but the first only consume. SIGUSR1 kills the "
            "last one of the first DC, like a crash.",
        ),
    ] = 1,
    prints_json: ReadyJsonOption = False,
    is_ephemeral: Annotated[
        bool,
        typer.Option(
            "--ephemeral", help="For tests: one DC, free ports; ends with its parent or its stdin."
        ),
    ] = False,
    verbose: VerboseOption = False,
    accepts_damage: AcceptDamageOption = False,
) -> None:
    """Run a whole cluster on this machine: two datacentres in one process, no Kafka needed.

    Each datacentre has its own ports for publishing and management.
    Both know all subscriptions; each delivers the messages that were published in it.
    SIGTERM or Ctrl-C drains and stops; a second one stops at once.
    """
    if is_ephemeral:
        if data is not None:
            raise UsageWrong("--ephemeral keeps no data: leave out --data, or --ephemeral")
        dcs, publish_port, management_port = dcs or "dc1", publish_port or 0, management_port or 0
    plan = plan_nodes(
        *(dcs or "dc1,dc2", publish_port, management_port),
        data=data,
        file=config,
        consumers=consumers,
    )
    log_to(sys.stderr, plan.nodes[0].log, is_verbose=verbose)
    plan = msgspec.structs.replace(plan, prints_json=prints_json, accepts_damage=accepts_damage)
    run_nodes(_run_until_abandoned if is_ephemeral else _run, plan, options=_PORT_OPTIONS)


def plan_nodes(
    dcs: str,
    publish_port: int | None = None,
    management_port: int | None = None,
    *,
    data: Path | None = None,
    file: Path | None = None,
    consumers: int = 1,
) -> DevPlan:
    """Make the configuration of each datacentre's node. Raises UsageWrong and ConfigError.

    `consumers`: how many nodes of each datacentre deliver.

    An option that is None keeps the value of the file and the environment. Ports count up from the
    first datacentre's; 0 takes free ones.
    """
    names = [name.strip() for name in dcs.split(",")]
    if len(set(names)) != len(names) or not all(map(is_name_part, names)):
        raise UsageWrong(
            f"--dcs: '{dcs}' is not a list of distinct names separated by commas, for example "
            "dc1,dc2"
        )
    base = configuration.load(file, os.environ, DEV_DEFAULTS)
    publish_port = base.frontend.port if publish_port is None else publish_port
    management_port = base.management.port if management_port is None else management_port
    nodes = []
    for index, name in enumerate(names):
        nodes.append(
            msgspec.structs.replace(
                base,
                dc=name,
                node=f"{name}-1",
                frontend=_counted_up(base.frontend, publish_port, index),
                management=_counted_up(base.management, management_port, index),
                grpc=msgspec.structs.replace(
                    base.grpc, port=base.grpc.port + index if base.grpc.port else 0
                ),
            )
        )
    more = [_delivering(node, number) for node in nodes for number in range(2, consumers + 1)]
    return DevPlan(nodes, data, prints_json=False, more=more)


def _counted_up(section: _Listener, port: int, index: int) -> _Listener:
    """Return the section with the port of the datacentre `index`; 0 stays 0, for a free port."""
    tls = section.tls
    if tls.certificate_file and tls.port:
        tls = msgspec.structs.replace(tls, port=tls.port + index)
    return msgspec.structs.replace(section, port=port + index if port else 0, tls=tls)


def _delivering(first: Config, number: int) -> Config:
    """Make the configuration of another node of the datacentre, which only delivers."""
    return msgspec.structs.replace(
        first,
        node=f"{first.dc}-{number}",
        roles=["consumers"],
        grpc=GrpcConfig(),
        status=msgspec.structs.replace(first.status, port=0),
    )


async def _run_until_abandoned(plan: DevPlan) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_call_when_abandoned, nursery.cancel_scope.cancel)
        await _run(plan)
        nursery.cancel_scope.cancel()


async def _call_when_abandoned(end: Callable[[], None]) -> None:
    """Call `end` when stdin, if it is a pipe or a socket, is closed, or when the parent process
    ends. Another stdin (a terminal, /dev/null) says nothing about who started this.
    """
    parent = os.getppid()
    kind = 0 if sys.stdin is None else os.fstat(0).st_mode
    is_held = stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)
    while os.getppid() == parent:
        # A closed pipe is readable; what is written to it is discarded.
        if is_held and select.select([0], [], [], 0)[0] and not os.read(0, 65_536):
            break
        await trio.sleep(0.2)
    _logger.info("ends, because its stdin is closed or its parent process has ended")
    # Without a drain: the data goes, and nobody needs the answers any more.
    end()


async def _run(plan: DevPlan) -> None:
    async with AsyncExitStack() as stack:
        data = plan.data
        if data is None:
            data = Path(
                stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="hermes-", ignore_cleanup_errors=True)
                )
            )
        logs = {
            node.dc: await stack.enter_async_context(
                open_embedded_log(
                    data / node.dc,
                    node.dc,
                    SystemClock(),
                    retention_check_interval_ms=node.log.retention_check_interval_ms,
                    accepts_damage=plan.accepts_damage,
                )
            )
            for node in plan.nodes
        }
        nodes = _spooling_to(data / "spool", [*plan.nodes, *plan.more])
        await serve_nodes(
            [(node, environment_of(node, embedded_logs(logs, node.dc))) for node in nodes],
            lambda addresses: _announce(plan, addresses, data),
            before_exit=lambda: None if plan.data else shutil.rmtree(data, ignore_errors=True),
            ends_at_usr1=plan.consumers(plan.nodes[0].dc)[-1] if plan.more else "",
            # A laptop is often busy for less.
            stall_logged_s=1.0,
        )


def _spooling_to(directory: Path, nodes: Sequence[Config]) -> list[Config]:
    """Return the configurations with spools in `directory`, beside the logs."""
    return [
        msgspec.structs.replace(
            node, spool=msgspec.structs.replace(node.spool, directory=str(directory))
        )
        for node in nodes
    ]


def _announce(plan: DevPlan, addresses: list[Addresses], data: Path) -> None:
    addresses = addresses[: len(plan.nodes)]
    if plan.prints_json:
        dcs = [
            {
                **msgspec.to_builtins(each),
                "consumers": [{"node": name} for name in plan.consumers(each.dc)],
            }
            for each in addresses
        ]
        print(json.dumps({"ready": True, "dcs": dcs, "data": str(data)}), flush=True)
        return
    for each in addresses:
        publish = each.publish or each.publish_tls or "-"
        management = each.management or each.management_tls or "-"
        print(f"{each.dc}: publish {publish}, management {management}")
        print(f"{each.dc}: console {management}/console")
        if each.grpc:
            print(f"{each.dc}: gRPC {each.grpc}")
        if plan.more:
            print(f"{each.dc}: delivered by {', '.join(plan.consumers(each.dc))}")
    kept = "kept" if plan.data is not None else "temporary: deleted when this ends"
    print(f"data: {data} ({kept})", flush=True)
