"""`hermes status` and `hermes top`: what there is in all datacentres, and how it fares."""

import json
import shutil
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from hermes_actors.cli.command_line.failures import CommandFailed, UsageWrong
from hermes_actors.cli.command_line.options import (
    Output,
    OutputOption,
    Sort,
)
from hermes_actors.cli.connection.asking import management_command
from hermes_actors.cli.connection.management import ManagementClient
from hermes_actors.cli.output.render import (
    counted,
    fields_of,
    known,
    parsed_object,
    printable,
    say,
    say_unknown,
    say_wrapped,
    show_answer,
    show_rows,
    write_json,
)
from hermes_actors.cli.output.watching import WatchOption, watched

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")
top_app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")

_COLUMNS = ("DC", "Node", "State", "Age", "Publ./s", "Deliv./s", "Subscr.", "Ill", "Roles")


@management_command(
    app, "hermes status", "hermes status --watch", "hermes status --check || page me"
)
def status(
    client: ManagementClient,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Say whether all is well: exit code 0 yes, 1 no, 2 cannot tell."
        ),
    ] = False,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show all nodes of all datacentres, as the node that is asked has heard of them."""
    if check and watch:
        raise UsageWrong("--check is done once: leave out --watch")
    if check:
        raise typer.Exit(_checked(client, output))
    watched(lambda: show_answer(client.get("/status/nodes"), output, _show_nodes), watch)


_WELL, _UNHEALTHY, _UNKNOWN = 0, 1, 2
_VERDICTS = ("HEALTHY", "UNHEALTHY", "UNKNOWN")


def _checked(client: ManagementClient, output: Output) -> int:
    """Say what is not well; the exit code. What is known to be ill outweighs the unknown."""
    try:
        found = parsed_object(client.get("/status/nodes"))
        ill = parsed_object(client.get("/status/subscriptions", {"unhealthy": "true"}))
        code, reasons = judged(found, ill)
    except CommandFailed as failure:
        code, reasons = _UNKNOWN, [failure.message]
    if output is Output.JSON:
        say(json.dumps({"status": _VERDICTS[code], "reasons": reasons}, ensure_ascii=False))
        return code
    say(_VERDICTS[code])
    for reason in reasons:
        say_wrapped(reason)
    return code


def judged(found: dict[str, Any], ill: dict[str, Any]) -> tuple[int, list[str]]:
    """The exit code and what speaks against 0, from the nodes and the unhealthy subscriptions."""
    unknown = [
        f"{dc.get('datacenter')}: {dc.get('reason')}"
        for dc in fields_of(found, "datacenters")
        if not dc.get("isKnown")
    ]
    nodes = fields_of(found, "nodes")
    if not nodes:
        unknown.append("no node is known")
    against = [
        f"{node.get('datacenter')} {node.get('node')} is {node.get('state')}: "
        + "; ".join(map(str, node.get("reasons", [])))
        for node in nodes
        if node.get("state") in ("GONE", "NOT_READY")
    ]
    against += [
        f"{each.get('datacenter')}: {each.get('text')}" for each in fields_of(found, "notices")
    ]
    for each in fields_of(ill, "subscriptions"):
        problems = "; ".join(str(one.get("description")) for one in fields_of(each, "problems"))
        against.append(f"{each.get('topicName')} {each.get('name')}: {problems}")
    code = _UNHEALTHY if against else _UNKNOWN if unknown else _WELL
    return code, [*against, *unknown]


def _show_nodes(found: dict[str, Any]) -> None:
    nodes = fields_of(found, "nodes")
    rows = [_row(node) for node in nodes]
    show_rows(_COLUMNS, rows, "no node is known", optional=("Roles",))
    # Sentences do not fit into a column beside so many others.
    _say_what_stands_out(found, nodes)
    stopped, failing = _stopped(found), _failing(found)
    if stopped or failing:
        say(
            f"ill: {counted(stopped, 'subscription')} stopped, {failing} failing, "
            "see 'hermes subscription list --unhealthy'"
        )


def _say_what_stands_out(found: dict[str, Any], nodes: Sequence[dict[str, Any]]) -> None:
    """A line for each datacentre of which nothing is known, and for all that nodes have to say."""
    say_unknown(found)
    for node in nodes:
        # Of an unknown datacentre everything has been said by its own line.
        if node.get("reasons") and node.get("state") != "UNKNOWN":
            reasons = "; ".join(node["reasons"])
            say(printable(f"{node.get('datacenter')} {node.get('node')}: {reasons}"))
        if node.get("state") in ("READY", "NOT_READY"):
            for notice in node.get("notices", ()):
                say(printable(f"{node.get('datacenter')} {node.get('node')}: {notice}"))
    for notice in fields_of(found, "notices"):
        say(printable(f"{notice.get('datacenter')}: {notice.get('text')}"))


def _stopped(found: dict[str, Any]) -> int:
    return int(found.get("stoppedSubscriptions", 0))


def _failing(found: dict[str, Any]) -> int:
    return int(found.get("failingSubscriptions", 0))


def _row(node: dict[str, Any]) -> list[str]:
    figures = [
        f"{node.get('publishedRate', 0):.1f}",
        f"{node.get('deliveredRate', 0):.1f}",
        str(node.get("subscriptions", "")),
        str(_stopped(node) + _failing(node)),
    ]
    # Of who is not there any more the last ones tell nothing.
    is_over = node.get("state") in ("GONE", "LEFT")
    if node.get("state") == "UNKNOWN":
        # Its datacentre tells nothing: what it told last is true no more.
        figures = ["?"] * len(figures)
    return [
        str(node.get("datacenter", "")),
        str(node.get("node", "")),
        str(node.get("state", "")),
        f"{node.get('ageMs', 0) / 1_000:.1f} s",
        *(["-"] * len(figures) if is_over else figures),
        ", ".join(node.get("roles", [])),
    ]


# `hermes top`.

_NODE_COLUMNS = ("DC", "Node", "State", "Publ./s", "Deliv./s", "Ill", "Spool", "Away/s", "Loop ms")
_TOPIC_COLUMNS = ("Topic", "Publ./s", "4xx/s", "5xx/s", "Deliv./s", "Subscr.", "Ill", "Lag", "Out")
_SUBSCRIPTION_COLUMNS = ("Subscription", "State", "Deliv./s", "Lag", "Out", "Retries", "Reason")
_LINES_BESIDE = 14
"""Of the screen: titles, the line above, and what is told below the tables."""
_ROWS_MIN, _ROWS_IN_PIPE = 3, 20
_WORST_FIRST = ("GONE", "NOT_READY", "UNKNOWN", "READY", "LEFT")


@management_command(
    top_app, "hermes top", "hermes top --sort lag", "hermes top --once", "hermes top --json"
)
def top(
    client: ManagementClient,
    sort: Annotated[Sort, typer.Option("--sort", help="Of topics and subscriptions.")] = Sort.STATE,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1, metavar="N", help="Rows of each table.", show_default="what fits"
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show it once, and end.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Watch nodes, topics and subscriptions of all datacentres, the worst first, until Ctrl-C.

    Spool: messages that wait on a node's disk. Out: pushes under way.
    Away/s: messages sent to another datacentre. Loop ms: how late it was.
    With --json it is shown once, as one object.
    """

    def show() -> CommandFailed | None:
        rows_max = limit
        if rows_max is None and output is not Output.JSON:
            rows_max = rows_that_fit(sys.__stdout__ is not None and sys.__stdout__.isatty())
        found, failure = _everything(client, sort, rows_max)
        if output is Output.JSON:
            write_json(json.dumps(found, ensure_ascii=False).encode())
        else:
            _show_everything(found, is_whole=failure is None)
        return failure

    if once or output is Output.JSON:
        if failure := show():
            raise failure
        return

    def show_and_go_on() -> None:
        if failure := show():
            say(f"hermes: {failure.message}")

    watched(show_and_go_on, True)


def rows_that_fit(is_terminal: bool, lines: int | None = None) -> int:
    """How many rows each of three tables has on a screen of so many lines (None: as it is now)."""
    if not is_terminal:
        return _ROWS_IN_PIPE
    lines = shutil.get_terminal_size().lines if lines is None else lines
    return max(_ROWS_MIN, (lines - _LINES_BESIDE) // 3)


def _badness(node: dict[str, Any]) -> tuple[int, int, float]:
    """The order of nodes, the worst first."""
    state = str(node.get("state"))
    rank = _WORST_FIRST.index(state) if state in _WORST_FIRST else len(_WORST_FIRST)
    return rank, -(_stopped(node) + _failing(node)), -float(node.get("loopLagMs", 0))


def _everything(
    client: ManagementClient, sort: Sort, limit: int | None
) -> tuple[dict[str, Any], CommandFailed | None]:
    """Nodes, topics and subscriptions, and the error if not all of them are known: nodes are shown
    also where no topic is known yet, which is when they are wanted most.
    """
    wanted = {"sort": sort.value} | ({} if limit is None else {"limit": str(limit)})
    found = parsed_object(client.get("/status/nodes"))
    nodes = fields_of(found, "nodes")
    found["nodesInAll"] = len(nodes)
    found["nodes"] = sorted(nodes, key=_badness)[:limit]
    found |= {"topics": [], "subscriptions": []}
    try:
        for name in ("topics", "subscriptions"):
            found[name] = fields_of(parsed_object(client.get(f"/status/{name}", wanted)), name)
    except CommandFailed as failure:
        return found, failure
    return found, None


def _show_everything(found: dict[str, Any], *, is_whole: bool) -> None:
    nodes, topics = fields_of(found, "nodes"), fields_of(found, "topics")
    show_rows(_NODE_COLUMNS, [_top_node(each) for each in nodes], "no node is known")
    if (more := found.get("nodesInAll", 0) - len(nodes)) > 0:
        say(f"and {counted(more, 'more node')}")
    say("")
    if is_whole or topics:
        show_rows(_TOPIC_COLUMNS, [_top_topic(each) for each in topics], "no topics")
        say("")
    if is_whole:
        rows = [_top_subscription(each) for each in fields_of(found, "subscriptions")]
        show_rows(_SUBSCRIPTION_COLUMNS, rows, "no subscriptions", has_sentences=True)
    _say_what_stands_out(found, nodes)


def _top_node(node: dict[str, Any]) -> list[str]:
    dc, name, state, _, published, delivered, _, ill, _ = _row(node)
    figures = [
        str(node.get("spooledMessages", 0)),
        f"{node.get('elsewhereRate', 0):.1f}",
        f"{node.get('loopLagMs', 0):.0f}",
    ]
    if published in ("-", "?"):
        figures = [published] * len(figures)
    return [dc, name, state, published, delivered, ill, *figures]


def _top_topic(topic: dict[str, Any]) -> list[str]:
    rates = [topic.get(each, 0) for each in ("rate", "rejectedRate", "failedRate", "deliveryRate")]
    counts = ("subscriptions", "unhealthySubscriptions", "lag", "inflight")
    return [
        str(topic.get("topicName")),
        *(f"{each:.1f}" if topic.get("isKnown", True) else "?" for each in rates),
        *(known(topic.get(each)) for each in counts),
    ]


def _top_subscription(found: dict[str, Any]) -> list[str]:
    return [
        f"{found.get('topicName')} {found.get('name')}",
        str(found.get("condition", "")),
        f"{found.get('rate', 0):.1f}",
        known(found.get("lag")),
        known(found.get("inflight")),
        known(found.get("waitingRetries")),
        # All of them are told by `hermes subscription why`.
        "".join(str(each.get("text")) for each in fields_of(found, "reasons")[:1]),
    ]
