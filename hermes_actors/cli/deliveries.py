"""`hermes subscription suspend|activate|lag|retransmit|why`: how subscriptions fare."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from hermes_actors.cli.confirm import confirm_deletion
from hermes_actors.cli.failures import UsageWrong
from hermes_actors.cli.management import ManagementClient, quoted
from hermes_actors.cli.options import (
    MANAGEMENT_URL_DEFAULT,
    ManagementOption,
    Output,
    OutputOption,
    SubscriptionArgument,
    TopicArgument,
    YesOption,
    examples,
)
from hermes_actors.cli.outcome import show_changed
from hermes_actors.cli.plain import PlainCommand, PlainGroup
from hermes_actors.cli.render import (
    counted,
    fields_of,
    parsed_object,
    printable,
    say,
    show_rows,
    write_json,
)
from hermes_actors.cli.times import TIME_HELP, time_to_send
from hermes_actors.model.moments import iso_ms

app = typer.Typer(cls=PlainGroup, rich_markup_mode="rich")

RETRANSMISSION_TIMEOUT_S = 60.0
"""The server waits up to 30 s for the consumers, and before that for logs that do not answer."""


def subscription_path(topic: str, subscription: str | None = None) -> str:
    """The route of a topic's subscriptions, or of one of them. Raises UsageWrong."""
    path = f"/topics/{quoted(topic)}/subscriptions"
    return path if subscription is None else f"{path}/{quoted(subscription)}"


@app.command(cls=PlainCommand, epilog=examples("hermes subscription suspend shop.orders billing"))
def suspend(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    management: ManagementOption = MANAGEMENT_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Stop deliveries; the place in the topic is kept."""
    _set_state(topic, subscription, "SUSPENDED", management, output)


@app.command(cls=PlainCommand, epilog=examples("hermes subscription activate shop.orders billing"))
def activate(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    management: ManagementOption = MANAGEMENT_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Go on with deliveries where they stopped."""
    _set_state(topic, subscription, "ACTIVE", management, output)


def _set_state(topic: str, name: str, state: str, management: str, output: Output) -> None:
    path = subscription_path(topic, name)
    with ManagementClient(management) as client:
        answer = client.put(f"{path}/state", state)
        line = f"subscription {name} of {topic}: asked to be {state}"
        show_changed(client, path, answer, line, output)


@app.command(cls=PlainCommand, epilog=examples("hermes subscription lag shop.orders billing"))
def lag(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    management: ManagementOption = MANAGEMENT_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show for each datacentre and partition what is not delivered yet.

    A message that waits for its retry counts as one, whatever was delivered after it.
    """
    with ManagementClient(management) as client:
        content = client.get(f"{subscription_path(topic, subscription)}/lag")
    if output is Output.JSON:
        write_json(content)
        return
    found = parsed_object(content)
    datacenters = fields_of(found, "datacenters")
    rows = [
        [str(dc.get("datacenter", "")), *_figures(partition)]
        for dc in datacenters
        for partition in fields_of(dc, "partitions")
    ]
    show_rows(("DC", "Partition", "Position", "End", "Lag"), rows, "no partition is known")
    for dc in datacenters:
        if reason := dc.get("reason"):
            say(printable(f"{dc.get('datacenter')}: {reason}"))
    say(f"in all: {_known(found.get('lag'))}")
    _say_letters(topic, subscription, found)


def _figures(partition: dict[str, Any]) -> list[str]:
    names = ("partition", "position", "end", "lag")
    return [_known(partition.get(name)) for name in names]


def _known(number: object) -> str:
    return str(number) if isinstance(number, int) and number >= 0 else "?"


@app.command(
    cls=PlainCommand,
    epilog=examples(
        "hermes subscription retransmit shop.orders billing --to 2026-01-31T12:00:00Z --dry-run",
        "hermes subscription retransmit shop.orders billing --to end",
        "hermes subscription retransmit shop.orders billing --offset dc1/0=4200 --offset dc2/3=0",
    ),
)
def retransmit(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|start|end", help=f"Where to go on, in all datacentres; TIME: {TIME_HELP}."
        ),
    ] = None,
    offset: Annotated[
        list[str] | None,
        typer.Option(metavar="DC/PARTITION=N", help="Where to go on in one partition; repeatable."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show where it would go on, and what that means.")
    ] = False,
    yes: YesOption = False,
    management: ManagementOption = MANAGEMENT_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Go on somewhere else in the topic: back, to deliver again, or forward, to skip.

    The subscription may be suspended. Returns when its consumers have gone there.
    """
    body = retransmission(to, offset)
    if to == "end" and not dry_run:
        what = f"all that subscription {subscription} of {topic} has not been delivered yet"
        confirm_deletion(what, yes, "skip")
    path = f"{subscription_path(topic, subscription)}/retransmission"
    if dry_run:
        path += "?dryRun=true"
    with ManagementClient(management) as client:
        content = client.put(path, body, timeout_s=RETRANSMISSION_TIMEOUT_S)
        is_shown = dry_run and output is Output.TABLE
        now = client.get(f"{subscription_path(topic, subscription)}/lag") if is_shown else b"{}"
    if output is Output.JSON:
        write_json(content)
        return
    found = parsed_object(content)
    positions = _positions(parsed_object(now))
    rows = [
        [
            dc,
            _known(entry.get("partition")),
            _known(entry.get("offset")),
            *([_moved(entry, positions.get((dc, entry.get("partition"))))] if dry_run else []),
        ]
        for dc in found
        for entry in fields_of(found, dc)
    ]
    columns = ("DC", "Partition", "Offset", *(("Means",) if dry_run else ()))
    show_rows(columns, rows, "no partition is known")
    for line in _kept_within(body, found):
        say(printable(line))
    for dc in found:
        if not fields_of(found, dc) and "offsets" not in body:
            say(printable(f"{dc}: its log does not answer; found out there when it does"))
    what = "would go on" if dry_run else "goes on"
    say(f"subscription {printable(subscription)} of {printable(topic)} {what} there")


def _positions(lag: dict[str, Any]) -> dict[tuple[str, Any], int]:
    """Where each partition of each datacentre stands, as far as that is known."""
    return {
        (str(dc.get("datacenter")), partition.get("partition")): partition["position"]
        for dc in fields_of(lag, "datacenters")
        for partition in fields_of(dc, "partitions")
        if isinstance(partition.get("position"), int)
    }


def _moved(entry: dict[str, Any], position: int | None) -> str:
    offset = entry.get("offset")
    if position is None or not isinstance(offset, int):
        return "?"
    if offset == position:
        return "stays"
    return f"{position - offset} again" if offset < position else f"{offset - position} skipped"


def _kept_within(body: dict[str, Any], found: dict[str, Any]) -> Iterator[str]:
    """Where the server has gone on elsewhere than was asked for: the log holds no such offset."""
    for dc, asked in body.get("offsets", {}).items():
        for entry in fields_of(found, dc):
            wanted, got = asked.get(str(entry.get("partition"))), entry.get("offset")
            if wanted is not None and wanted != got:
                edge = "begins" if isinstance(got, int) and got > wanted else "ends"
                yield (
                    f"{dc}/{entry.get('partition')}: not at {wanted}, for what the log holds "
                    f"{edge} at {got}"
                )


def retransmission(to: str | None, offsets: list[str] | None) -> dict[str, Any]:
    """The body that the options mean. Raises UsageWrong."""
    if bool(to) == bool(offsets):
        raise UsageWrong(
            "say where to go on: --to with a time, start or end, or --offset DC/PARTITION=N, "
            "not both"
        )
    if offsets:
        return {"offsets": _offsets(offsets)}
    assert to is not None, "one of the two was given"
    if to in ("start", "end"):
        return {"to": to}
    return {"retransmissionDate": time_to_send("--to", to, "start, end, ")}


def _offsets(texts: list[str]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for text in texts:
        place, _, number = text.partition("=")
        dc, _, partition = place.rpartition("/")
        if not dc or not partition.isdecimal() or not number.isdecimal():
            raise UsageWrong(f"--offset '{text}': expected DC/PARTITION=N, for example dc1/0=4200")
        if partition in found.setdefault(dc, {}):
            raise UsageWrong(f"--offset '{text}': partition {partition} of {dc} is given twice")
        found[dc][partition] = int(number)
    return found


@app.command(cls=PlainCommand, epilog=examples("hermes subscription why shop.orders billing"))
def why(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    management: ManagementOption = MANAGEMENT_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say for each datacentre and node what holds a subscription back, or that it is delivered."""
    with ManagementClient(management) as client:
        content = client.get(f"{subscription_path(topic, subscription)}/why")
    if output is Output.JSON:
        write_json(content)
        return
    found = parsed_object(content)
    say(f"subscription {printable(subscription)} of {printable(topic)} is {found.get('state')}")
    if found.get("state") == "SUSPENDED":
        by = f"{found['suspensionReason']}; " if found.get("suspensionReason") else ""
        way_out = f"to deliver again: 'hermes subscription activate {topic} {subscription}'"
        say(printable(by + way_out))
    datacenters = fields_of(found, "datacenters")
    rows = [row for each in datacenters for row in _why_rows(each)]
    nothing = "the node that was asked follows no node's status"
    show_rows(_WHY_COLUMNS, rows, nothing, has_sentences=True)
    for each in datacenters:
        for node in fields_of(each, "nodes"):
            if words := "; ".join(_held_by(node)):
                say(printable(f"{each.get('datacenter')} {node.get('node')}: {words}"))
    _say_letters(topic, subscription, found)


def _say_letters(topic: str, subscription: str, found: dict[str, Any]) -> None:
    """How many dead letters there are, the newest one's cause, and where to see them."""
    letters = found.get("deadLetters")
    if not isinstance(letters, dict) or not letters.get("open"):
        return
    least = "" if letters.get("isComplete") else "at least "
    newest = letters.get("newest") or {}
    cause = ": ".join(str(newest[each]) for each in ("reason", "detail") if newest.get(each))
    say(
        printable(
            f"{least}{counted(letters['open'], 'dead letter')}, the newest of "
            f"{newest.get('discardedAt', '?')}: {cause}; "
            f"see 'hermes dlq list {topic} {subscription}'"
        )
    )


_WHY_COLUMNS = ("DC", "Node", "State", "Deliv./s", "Lag", "Reason")

_LEVELS = {
    "FULL": "the endpoint gets up to {rate} a second, all that the subscription allows",
    "ADAPTING": "the endpoint gets up to {rate} a second, less than the subscription allows, as "
    "long as it fails or has just failed",
    "SLOW": "the endpoint gets a single message about each second, until one succeeds",
    "HEARTBEAT": "the endpoint gets a single message about each minute, until one succeeds",
}


_SHARE = (
    "the endpoint gets up to {rate} a second from this node: its share, {percent} % of the "
    "subscription's {rate_max}"
)


def _held_by(node: dict[str, Any]) -> Iterator[str]:
    """What there is to say of the rate, of what is under way, and of the last failure."""
    level = node.get("rateLevel")
    if level:
        rate, rate_max = node.get("rateNow", 0), node.get("rateMax", 0)
        text = _LEVELS.get(level, f"rate level {level}, up to {{rate}} a second")
        if level == "FULL" and rate < 0.995 * rate_max:
            text = _SHARE
        percent = 100 * rate / rate_max if rate_max else 100
        yield text.format(rate=f"{rate:.1f}", percent=f"{percent:.0f}", rate_max=f"{rate_max:g}")
    inflight, waiting = node.get("inflight", 0), node.get("waitingRetries", 0)
    if inflight or waiting:
        oldest = (
            f", the oldest {oldest_ms / 1_000:.1f} s old"
            if (oldest_ms := node.get("oldestAgeMs", 0))
            else ""
        )
        lag = max(node.get("lag", -1), inflight + waiting)
        yield (
            f"of {counted(lag, 'message')} not settled {inflight} in flight, "
            f"{waiting} waiting for a retry{oldest}"
        )
    if failure := node.get("lastFailure"):
        # The reason above may tell of it already.
        what = "" if failure in str(node.get("reason", "")) else f": {failure}"
        yield f"last failure {_time(node.get('lastFailureAt'))}{what}"
        if "lastSuccessAt" in node:
            yield f"last success {_time(node['lastSuccessAt'])}"
        else:
            yield "no success since the node's start"
    if hint := node.get("hint"):
        yield str(hint)


def _time(epoch_s: object) -> str:
    if not isinstance(epoch_s, int | float):
        return "?"
    return iso_ms(round(epoch_s * 1_000), "seconds")


def _why_rows(datacenter: dict[str, Any]) -> list[list[str]]:
    """A row for each node; one with the datacentre's reason where none tells of it."""
    dc = str(datacenter.get("datacenter", ""))
    rows = [
        [
            dc,
            str(node.get("node", "")),
            str(node.get("state", "")),
            f"{node.get('rate', 0):.1f}",
            "?" if node.get("lag", -1) < 0 else str(node["lag"]),
            str(node.get("reason", "")),
        ]
        for node in fields_of(datacenter, "nodes")
    ]
    if not rows or not datacenter.get("isKnown"):
        rows.insert(0, [dc, "", "", "", "", str(datacenter.get("reason", ""))])
    return rows
