"""`hermes status` and `hermes top`: the state of nodes, topics and subscriptions in all
datacentres.
"""

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

import typer

from hermes_actors.cli.command_line.failures import CommandFailed, UsageWrong
from hermes_actors.cli.command_line.options import Sort, wants_json
from hermes_actors.cli.connection.asking import management, management_command
from hermes_actors.cli.output.render import (
    Columns,
    Fields,
    counted,
    fields_of,
    full_name,
    parsed_object,
    say,
    say_unknown,
    show_answer,
    show_table,
    write_json,
)
from hermes_actors.cli.output.watching import WatchOption, watched

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")
top_app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")


@management_command(
    app, "hermes status", "hermes status --watch", "hermes status --check || page me"
)
def status(
    check: Annotated[
        bool,
        typer.Option("--check", help="Check the state: exit code 0 healthy, 1 not, 2 unknown."),
    ] = False,
    watch: WatchOption = False,
) -> None:
    """Show the nodes of all datacentres, as the answering node sees them."""
    if check and watch:
        raise UsageWrong("--check runs once: leave out --watch")
    if check:
        raise typer.Exit(_checked())
    watched(lambda: show_answer(management().get("/status/nodes"), _show_nodes), watch)


_WELL, _UNHEALTHY, _UNKNOWN = 0, 1, 2
_VERDICTS = ("HEALTHY", "UNHEALTHY", "UNKNOWN")


def _checked() -> int:
    """Print the problems and return the exit code; a known problem outweighs an unknown state."""
    try:
        found = parsed_object(management().get("/status/nodes"))
        ill = parsed_object(management().get("/status/subscriptions", {"unhealthy": "true"}))
        code, reasons = judged(found, ill)
    except CommandFailed as failure:
        code, reasons = _UNKNOWN, [failure.message]
    if wants_json():
        say(json.dumps({"status": _VERDICTS[code], "reasons": reasons}, ensure_ascii=False))
    else:
        say("\n".join((_VERDICTS[code], *reasons)))
    return code


def judged(found: Fields, ill: Fields) -> tuple[int, list[str]]:
    """Return the exit code and the problems, from the nodes and the unhealthy subscriptions."""
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
        against.append(f"{full_name(each)}: {problems}")
    code = _UNHEALTHY if against else _UNKNOWN if unknown else _WELL
    return code, [*against, *unknown]


def _figure(part: Callable[[Fields], object], node: Fields) -> object:
    """Return a node's figure; none if the node has gone or its datacentre is silent."""
    if node.get("state") in ("GONE", "LEFT"):
        return None
    return "?" if node.get("state") == "UNKNOWN" else part(node)


def _rate(name: str) -> Callable[[Fields], object]:
    return partial(_figure, lambda node: float(node.get(name, 0)))


def _count(name: str) -> Callable[[Fields], object]:
    return partial(_figure, lambda node: round(node.get(name, 0)))


def _ill(found: Fields) -> int:
    return int(found.get("stoppedSubscriptions", 0)) + int(found.get("failingSubscriptions", 0))


_WHO: Columns = {"DC": "datacenter", "Node": "node", "State": "state"}
_FLOWS: Columns = {"Publ./s": _rate("publishedRate"), "Deliv./s": _rate("deliveredRate")}
_ILL: Columns = {"Ill": partial(_figure, _ill)}
_STATUS_COLUMNS: Columns = {
    **_WHO,
    "Age": lambda node: f"{node.get('ageMs', 0) / 1_000:.1f} s",
    **_FLOWS,
    "Subscr.": _count("subscriptions"),
    **_ILL,
    "Roles": "roles",
}


def _show_nodes(found: Fields) -> None:
    nodes = fields_of(found, "nodes")
    show_table(_STATUS_COLUMNS, nodes, "no node is known")
    _say_what_stands_out(found, nodes)
    if _ill(found):
        stopped = counted(found.get("stoppedSubscriptions", 0), "subscription")
        say(
            f"unhealthy: {stopped} stopped, {found.get('failingSubscriptions', 0)} failing, "
            "see 'hermes subscription list --unhealthy'"
        )


def _say_what_stands_out(found: Fields, nodes: Sequence[Fields]) -> None:
    """Print a line for each unknown datacentre, and for each node's problems."""
    say_unknown(found)
    for node in nodes:
        name = f"{node.get('datacenter')} {node.get('node')}"
        # The line of an unknown datacentre covers its nodes.
        if node.get("reasons") and node.get("state") != "UNKNOWN":
            say(f"{name}: {'; '.join(node['reasons'])}")
        if node.get("state") in ("READY", "NOT_READY"):
            for notice in node.get("notices", ()):
                say(f"{name}: {notice}")
    for notice in fields_of(found, "notices"):
        say(f"{notice.get('datacenter')}: {notice.get('text')}")


_TOP_NODES: Columns = {
    **_WHO,
    **_FLOWS,
    **_ILL,
    "Spool": _count("spooledMessages"),
    "Away/s": _rate("elsewhereRate"),
    "Loop ms": _count("loopLagMs"),
}


def _topic_rate(name: str) -> Callable[[Fields], object]:
    return lambda topic: float(topic.get(name, 0)) if topic.get("isKnown", True) else "?"


_TOP_TOPICS: Columns = {
    "Topic": lambda each: each.get("topicName", "-") + " (in memory)" * ("durability" in each),
    "Publ./s": _topic_rate("rate"),
    "4xx/s": _topic_rate("rejectedRate"),
    "5xx/s": _topic_rate("failedRate"),
    "Deliv./s": _topic_rate("deliveryRate"),
    "Subscr.": "subscriptions",
    "Ill": "unhealthySubscriptions",
    "Lag": "lag",
    "Out": "inflight",
}
_TOP_SUBSCRIPTIONS: Columns = {
    "Subscription": full_name,
    "State": "condition",
    "Deliv./s": lambda each: float(each.get("rate", 0)),
    "Lag": "lag",
    "Out": "inflight",
    "Retries": "waitingRetries",
    # `hermes subscription why` shows all of them.
    "Reason": lambda each: [one.get("text") for one in fields_of(each, "reasons")[:1]],
}
_LINES_BESIDE = 14
"""Lines of the screen that are not rows: titles, and the lines above and below the tables."""
_ROWS_MIN, _ROWS_IN_PIPE = 3, 20
_WORST_FIRST = ("GONE", "NOT_READY", "UNKNOWN", "READY", "LEFT")


@management_command(
    top_app, "hermes top", "hermes top --sort lag", "hermes top --once", "hermes top --json"
)
def top(
    sort: Annotated[
        Sort, typer.Option("--sort", help="Order of topics and subscriptions.")
    ] = Sort.STATE,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1, metavar="N", help="Rows of each table.", show_default="as many as fit"
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show it once and exit.")] = False,
) -> None:
    """Watch nodes, topics and subscriptions of all datacentres, the worst first, until Ctrl-C.

    Spool: messages on a node's disk. Out: pushes in flight.
    Away/s: messages sent to another datacentre. Loop ms: delay of the event loop.
    With --json, prints one object and ends.
    """

    def show() -> CommandFailed | None:
        rows_max = limit
        if rows_max is None and not wants_json():
            rows_max = rows_that_fit(sys.__stdout__ is not None and sys.__stdout__.isatty())
        found, failure = _everything(sort, rows_max)
        if wants_json():
            write_json(json.dumps(found, ensure_ascii=False).encode())
        else:
            _show_everything(found, is_whole=failure is None)
        return failure

    if once or wants_json():
        if failure := show():
            raise failure
        return

    def show_and_go_on() -> None:
        if failure := show():
            say(f"hermes: {failure.message}")

    watched(show_and_go_on, True)


def rows_that_fit(is_terminal: bool, lines: int | None = None) -> int:
    """Return the number of rows of each of three tables on a screen of `lines` (None: its current
    height).
    """
    if not is_terminal:
        return _ROWS_IN_PIPE
    lines = shutil.get_terminal_size().lines if lines is None else lines
    return max(_ROWS_MIN, (lines - _LINES_BESIDE) // 3)


def _badness(node: Fields) -> tuple[int, int, float]:
    """Return the sort key of a node; the worst comes first."""
    state = str(node.get("state"))
    rank = _WORST_FIRST.index(state) if state in _WORST_FIRST else len(_WORST_FIRST)
    return rank, -_ill(node), -float(node.get("loopLagMs", 0))


def _everything(sort: Sort, limit: int | None) -> tuple[Fields, CommandFailed | None]:
    """Return nodes, topics and subscriptions, and the error if not all of them are known.

    Nodes are shown even if topics are unknown, because they are most useful then.
    """
    wanted = {"sort": sort.value} | ({} if limit is None else {"limit": str(limit)})
    found = parsed_object(management().get("/status/nodes"))
    nodes = fields_of(found, "nodes")
    found["nodesInAll"] = len(nodes)
    found["nodes"] = sorted(nodes, key=_badness)[:limit]
    found |= {"topics": [], "subscriptions": []}
    try:
        for name in ("topics", "subscriptions"):
            answer = parsed_object(management().get(f"/status/{name}", wanted))
            found[name] = fields_of(answer, name)
    except CommandFailed as failure:
        return found, failure
    return found, None


def _show_everything(found: Fields, *, is_whole: bool) -> None:
    nodes, topics = fields_of(found, "nodes"), fields_of(found, "topics")
    show_table(_TOP_NODES, nodes, "no node is known")
    if (more := found.get("nodesInAll", 0) - len(nodes)) > 0:
        say(f"and {counted(more, 'more node')}")
    say("")
    if is_whole or topics:
        show_table(_TOP_TOPICS, topics, "no topics")
        say("")
    if is_whole:
        show_table(_TOP_SUBSCRIPTIONS, fields_of(found, "subscriptions"), "no subscriptions")
    _say_what_stands_out(found, nodes)
