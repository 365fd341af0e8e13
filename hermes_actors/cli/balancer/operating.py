"""`hermes balancer drain|constrain|constraints`: administrators' orders to the balancer."""

from collections.abc import Callable
from typing import Annotated

import trio
import typer

from hermes_actors.cli.administration.arguments import TopicArgument, completed
from hermes_actors.cli.administration.resource import subscription_path, topic_path
from hermes_actors.cli.balancer.tables import drained
from hermes_actors.cli.command_line.failures import CommandFailed, UsageWrong, warn
from hermes_actors.cli.connection.asking import management, management_command
from hermes_actors.cli.connection.management import Refusal, quoted
from hermes_actors.cli.output.render import (
    Fields,
    counted,
    fields_of,
    parsed_object,
    printable,
    say,
    show_answer,
    show_table,
)

app = typer.Typer()

POLL_S = 0.5
_TIMEOUT_S_DEFAULT = 120.0


@management_command(
    app,
    "hermes balancer drain node-a --wait",
    "hermes balancer drain node-a --dc dc2 --reason 'new disks'",
    "hermes balancer drain node-a --undo",
)
def drain(
    node: Annotated[str, typer.Argument(metavar="NODE", help="A consuming node's name.")],
    dc: Annotated[
        str,
        typer.Option("--dc", metavar="DC", help="Needed if several have a node with this name."),
    ] = "",
    undo: Annotated[
        bool, typer.Option("--undo", help="Allow it to own subscriptions again.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also drain an unknown node, or the last one.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is empty.")] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0, help="How long to wait.")
    ] = _TIMEOUT_S_DEFAULT,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Reason, shown to other operators.")
    ] = "",
) -> None:
    """Move all subscriptions away from a node, and give it no new ones until --undo.

    Deliveries continue: each subscription is handed over. The node keeps running. Its name
    is marked, so it is still drained after a restart.
    """
    if undo and (wait or force or reason):
        raise UsageWrong("--undo cannot be combined with --wait, --force or --reason")
    dc = dc or _datacenter_of(node)
    path = f"/balancer/drains/{quoted(dc)}/{quoted(node)}"
    if undo:
        _undo(path, dc, node)
        return
    query = "?force=true" if force else ""
    try:
        management().put(path + query, {"reason": reason} if reason else {})
    except Refusal as refusal:
        if "use force" in refusal.message:
            raise CommandFailed(f"{refusal.message}: --force") from refusal
        raise
    say(f"{dc} {node}: its subscriptions move away; --undo reverses this")
    if wait:
        trio.run(wait_empty, lambda: _drained(dc, node), f"{dc} {node}", timeout_s)


def _undo(path: str, dc: str, node: str) -> None:
    was_drained = parsed_object(management().delete(path)).get("wasDrained")
    line = "can own subscriptions again" if was_drained else "was not drained"
    say(f"{dc} {node}: {line}")


def _datacenter_of(node: str) -> str:
    """Return the datacentre of the node. Raises UsageWrong."""
    datacenters = fields_of(parsed_object(management().get("/balancer")), "datacenters")
    nodes = {
        str(dc.get("datacenter", "")): {
            str(each.get("node")) for each in (*fields_of(dc, "members"), *fields_of(dc, "drained"))
        }
        for dc in datacenters
    }
    # If there is only one datacentre, the server lists its nodes in its error.
    found = [dc for dc, names in nodes.items() if node in names] or list(nodes)
    if len(found) == 1:
        return found[0]
    known = "; ".join(f"{dc}: {', '.join(sorted(names))}" for dc, names in nodes.items())
    raise UsageWrong(f"give --dc for node {node}; known nodes are {known or 'none'}")


def _drained(dc: str, node: str) -> Fields:
    """Return the state of a node's draining. Raises CommandFailed if it was undone."""
    content = management().get("/balancer", {"node": node})
    for each in fields_of(parsed_object(content), "datacenters"):
        if each.get("datacenter") == dc:
            for known in fields_of(each, "drained"):
                return known
    raise CommandFailed(f"{dc} {node}: is no longer drained: somebody reversed it")


async def wait_empty(look: Callable[[], Fields], name: str, timeout_s: float) -> None:
    """Print the progress of a node's draining whenever it changes, until the node is empty.

    Raises CommandFailed after `timeout_s`.
    """
    until_s = trio.current_time() + timeout_s
    said = ""
    while True:
        found = look()
        line = f"{name}: {drained(found)}"
        if line != said:
            say(line)
            said = line
        if not found.get("tasks"):
            return
        if trio.current_time() >= until_s:
            raise CommandFailed(
                f"{name}: still has {counted(found['tasks'], 'task')} after {timeout_s:.0f} s; "
                "moves continue: see 'hermes balancer status'"
            )
        await trio.sleep(POLL_S)


_PATH = "/workload-constraints"


@management_command(app, "hermes balancer constraints --json")
def constraints() -> None:
    """List the constraints on the number of nodes of topics and subscriptions."""
    show_answer(management().get(_PATH), _show_constraints)


def _show_constraints(found: Fields) -> None:
    rows = [
        {"name": name, **each}
        for kind in ("topicConstraints", "subscriptionConstraints")
        for name, each in (found.get(kind) or {}).items()
    ]
    columns = {
        "Topic or subscription": "name",
        "Nodes": "consumersNumber",
        "Reason": "reason",
    }
    show_table(columns, rows, "no constraints")


@management_command(
    app,
    "hermes balancer constrain shop.orders billing --nodes 1 --reason 'takes one connection'",
    "hermes balancer constrain shop.orders --nodes 4",
    "hermes balancer constrain shop.orders --remove",
)
def constrain(
    topic: TopicArgument,
    subscription: Annotated[
        str,
        typer.Argument(
            metavar="SUBSCRIPTION",
            help="Default: all of the topic.",
            autocompletion=completed("subscription"),
        ),
    ] = "",
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", metavar="N", min=1, help="How many nodes consume it."),
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Reason, shown to other operators.")
    ] = "",
    remove: Annotated[bool, typer.Option("--remove", help="Remove the constraint.")] = False,
) -> None:
    """Set how many nodes consume a subscription, or each subscription of a topic.

    There are never more than the topic's partitions, or the existing nodes.
    """
    if remove == (nodes is not None):
        raise UsageWrong("give --nodes N to set the constraint, or --remove to remove it")
    name = f"{topic}${subscription}" if subscription else topic
    if nodes is None:
        end = f"subscription/{quoted(topic)}/{quoted(subscription)}" if subscription else ""
        management().delete(f"{_PATH}/{end or f'topic/{quoted(topic)}'}")
        say(f"{name}: has no constraint")
        return
    kind = "subscription" if subscription else "topic"
    wanted = {"consumersNumber": nodes, **({"reason": reason} if reason else {})}
    management().put(f"{_PATH}/{kind}", {f"{kind}Name": name, "constraints": wanted})
    say(f"{name}: will be consumed by {counted(nodes, 'node')}")
    _warn_where_missing(topic, subscription)


def _warn_where_missing(topic: str, subscription: str) -> None:
    """Warn if the constraint's topic or subscription does not exist; it may be misspelt."""
    path = subscription_path(topic, subscription) if subscription else topic_path(topic)
    try:
        management().get(path)
    except Refusal as refusal:
        if refusal.code in ("TOPIC_NOT_EXISTS", "GROUP_NOT_EXISTS", "SUBSCRIPTION_NOT_EXISTS"):
            warn(f"{printable(subscription or topic)} does not exist yet")
