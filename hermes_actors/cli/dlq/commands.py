"""`hermes dlq …`: a subscription's dead letters, looked at, delivered again, or closed."""

from functools import partial
from typing import Annotated, Any

import typer

from hermes_actors.cli.administration.arguments import SubscriptionArgument, TopicArgument
from hermes_actors.cli.administration.resource import subscription_path
from hermes_actors.cli.command_line.options import Output, OutputOption, YesOption, confirm
from hermes_actors.cli.command_line.plain import command_group
from hermes_actors.cli.connection.asking import management_command
from hermes_actors.cli.connection.management import ManagementClient, quoted
from hermes_actors.cli.dlq.selection import (
    CHOICE,
    AllOption,
    DryRunOption,
    IdsArgument,
    chosen,
    counted_letters,
    meant,
)
from hermes_actors.cli.output.render import (
    counted,
    fields_of,
    parsed_object,
    printable,
    say,
    show_answer,
    show_object,
    show_rows,
)

app = command_group(
    "Dead letters: messages that a subscription gave up, kept until they are re-driven."
)


@management_command(
    app,
    "hermes dlq list shop.orders billing",
    "hermes dlq list shop.orders billing --reason expired --since 1h",
    name="list",
    options=CHOICE,
)
def list_letters(
    client: ManagementClient,
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    limit: Annotated[int, typer.Option(min=1, max=500, help="The most to show.")] = 50,
    before: Annotated[
        str | None, typer.Option(metavar="NEXT", help="The page after one that said so.")
    ] = None,
    output: OutputOption = Output.TABLE,
    **choice: str | None,
) -> None:
    """List open dead letters of all datacentres, newest first."""
    params = chosen(**choice)
    if before is not None:
        params["before"] = before
    content = client.get(_path(topic, subscription), {**params, "limit": str(limit)})
    show_answer(content, output, _show_letters)


def _show_letters(found: dict[str, Any]) -> None:
    rows = [_row(letter) for letter in fields_of(found, "deadLetters")]
    show_rows(_COLUMNS, rows, "no open dead letters", optional=("Tries",), has_sentences=True)
    _say_unreachable(found)
    if found.get("next"):
        say(f"there are more: --before {printable(str(found['next']))}")


_COLUMNS = ("Given up", "Id", "Message", "Status", "Tries", "Reason")


def _row(letter: dict[str, Any]) -> list[str]:
    detail = str(letter.get("detail") or "")
    reason = str(letter.get("reason", ""))
    return [
        str(letter.get("discardedAt", "")),
        str(letter.get("id", "")),
        str(letter.get("messageId") or "-"),
        str(letter.get("status") or "-"),
        str(letter.get("attempts", "")),
        f"{reason}: {detail}" if detail else reason,
    ]


@management_command(app, "hermes dlq show shop.orders billing dc1:0:3:1042")
def show(
    client: ManagementClient,
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    letter: Annotated[str, typer.Argument(metavar="ID", help="From 'hermes dlq list'.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Show one dead letter with its message, key and headers."""
    content = client.get(f"{_path(topic, subscription)}/{quoted(letter)}")
    show_object(content, output)


@management_command(
    app,
    "hermes dlq redrive shop.orders billing --all --dry-run",
    "hermes dlq redrive shop.orders billing --reason expired --rate 20",
    "hermes dlq redrive shop.orders billing dc1:0:3:1042",
    options=CHOICE,
)
def redrive(
    client: ManagementClient,
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    ids: IdsArgument = None,
    all_: AllOption = False,
    rate: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Messages a second, each DC.", show_default="50"),
    ] = None,
    dry_run: DryRunOption = False,
    output: OutputOption = Output.TABLE,
    **choice: str | None,
) -> None:
    """Deliver dead letters again, to this subscription only; see 'hermes dlq progress'."""
    body = meant(ids, all_, choice)
    body |= {"dryRun": dry_run} | ({} if rate is None else {"ratePerSecond": rate})
    content = client.post(f"{_path(topic, subscription)}/redrive", body)
    show = partial(_show_redrive, topic, subscription, dry_run)
    show_answer(content, output, show)


def _show_redrive(topic: str, subscription: str, dry_run: bool, found: dict[str, Any]) -> None:
    count = f"{counted_letters(found, 'matching')} of {subscription}"
    if dry_run:
        say(f"would re-drive {count}")
    else:
        say(
            f"re-drives {count}, {found.get('ratePerSecond')}/s in each datacentre; "
            f"see 'hermes dlq progress {topic} {subscription}'"
        )
    _say_unreachable(found)


@management_command(app, "hermes dlq progress shop.orders billing")
def progress(
    client: ManagementClient,
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show how far the last re-drive has come in each datacentre, also of one that is cancelled."""
    content = client.get(f"{_path(topic, subscription)}/redrive")
    show = partial(_show_progress, topic, subscription)
    show_answer(content, output, show)


def _show_progress(topic: str, subscription: str, found: dict[str, Any]) -> None:
    columns = ("DC", "State", "Total", "Redriven", "Failed", "Skipped", "Reason")
    rows = [
        [
            str(each.get(name, ""))
            for name in (
                "datacenter",
                "state",
                "total",
                "redriven",
                "failed",
                "skipped",
                "reason",
            )
        ]
        for each in fields_of(found, "datacenters")
    ]
    show_rows(columns, rows, "no datacentre has anything to re-drive", has_sentences=True)
    if failed := found.get("failed"):
        say(
            f"{counted(failed, 'message')} failed again, see 'hermes dlq list "
            f"{topic} {subscription} --since {found.get('requestedAt')}'"
        )


@management_command(app, "hermes dlq cancel shop.orders billing")
def cancel(
    client: ManagementClient,
    topic: TopicArgument,
    subscription: SubscriptionArgument,
) -> None:
    """Stop a re-drive; what is under way still ends, the other letters stay open."""
    path = f"{_path(topic, subscription)}/redrive"
    before = parsed_object(client.get(path))
    if before.get("isDone"):
        say(
            f"the last re-drive of {subscription} of {topic} was done already "
            f"({before.get('redriven')} re-driven, {before.get('failed')} failed): "
            "nothing to cancel"
        )
        return
    client.delete(path)
    say(
        f"cancelled the re-drive of subscription {subscription} of {topic}; what it has not "
        f"delivered stays open, see 'hermes dlq progress {topic} {subscription}'"
    )


@management_command(
    app,
    "hermes dlq expire shop.orders billing dc1:0:3:1042",
    "hermes dlq expire shop.orders billing --until 2d --yes",
    options=CHOICE,
)
def expire(
    client: ManagementClient,
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    ids: IdsArgument = None,
    all_: AllOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
    **choice: str | None,
) -> None:
    """Close dead letters that nobody will need; nothing re-drives them any more."""
    body = meant(ids, all_, choice) | {"dryRun": dry_run}
    if not ids and not dry_run:
        what = f"those dead letters of subscription {subscription} of {topic}"
        confirm(what, yes, "expire")
    content = client.post(f"{_path(topic, subscription)}/expire", body)
    verb = "would expire" if dry_run else "expired"
    show = partial(_show_expired, subscription, verb)
    show_answer(content, output, show)


def _show_expired(subscription: str, verb: str, found: dict[str, Any]) -> None:
    say(f"{verb} {counted_letters(found, 'expired')} of {subscription}")
    _say_unreachable(found)


def _say_unreachable(found: dict[str, Any]) -> None:
    for each in fields_of(found, "unreachable"):
        dc, reason = printable(str(each.get("datacenter"))), printable(str(each.get("reason")))
        say(f"{dc} is left out: {reason}")


def _path(topic: str, subscription: str) -> str:
    return f"{subscription_path(topic, subscription)}/dead-letters"
