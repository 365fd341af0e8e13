"""`hermes dlq …`: a subscription's dead letters, looked at, delivered again, or closed."""

from typing import Annotated, Any

import typer

from hermes_actors.cli.administration.resource import SUBSCRIPTION, subscription_path
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
    show_object,
    show_rows,
)

app = command_group(
    "Dead letters: messages that a subscription gave up, kept until they are re-driven."
)


def _say_unreachable(found: dict[str, Any]) -> None:
    for each in fields_of(found, "unreachable"):
        dc, reason = printable(str(each.get("datacenter"))), printable(str(each.get("reason")))
        say(f"{dc} is left out: {reason}")


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


def _show_letters(found: dict[str, Any]) -> None:
    rows = [_row(letter) for letter in fields_of(found, "deadLetters")]
    show_rows(_COLUMNS, rows, "no open dead letters", optional=("Tries",), has_sentences=True)
    _say_unreachable(found)
    if found.get("next"):
        say(f"there are more: --before {printable(str(found['next']))}")


@management_command(
    app,
    "hermes dlq list shop.orders billing",
    "hermes dlq list shop.orders billing --reason expired --since 1h",
    name="list",
    arguments=SUBSCRIPTION.arguments,
    options=CHOICE,
    show=_show_letters,
)
def list_letters(
    client: ManagementClient,
    topic: str,
    subscription: str,
    limit: Annotated[int, typer.Option(min=1, max=500, help="The most to show.")] = 50,
    before: Annotated[
        str | None, typer.Option(metavar="NEXT", help="The page after one that said so.")
    ] = None,
    **choice: str | None,
) -> bytes:
    """List open dead letters of all datacentres, newest first."""
    params = chosen(**choice)
    if before is not None:
        params["before"] = before
    return client.get(_path(topic, subscription), {**params, "limit": str(limit)})


@management_command(
    app, "hermes dlq show shop.orders billing dc1:0:3:1042", arguments=SUBSCRIPTION.arguments
)
def show(
    client: ManagementClient,
    topic: str,
    subscription: str,
    letter: Annotated[str, typer.Argument(metavar="ID", help="From 'hermes dlq list'.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Show one dead letter with its message, key and headers."""
    content = client.get(f"{_path(topic, subscription)}/{quoted(letter)}")
    show_object(content, output)


def _show_redrive(found: dict[str, Any], topic: str, subscription: str, dry_run: bool) -> None:
    count = f"{counted_letters(found, 'matching')} of {subscription}"
    if dry_run:
        say(f"would re-drive {count}")
    else:
        say(
            f"re-drives {count}, {found.get('ratePerSecond')}/s in each datacentre; "
            f"see 'hermes dlq progress {topic} {subscription}'"
        )
    _say_unreachable(found)


@management_command(
    app,
    "hermes dlq redrive shop.orders billing --all --dry-run",
    "hermes dlq redrive shop.orders billing --reason expired --rate 20",
    "hermes dlq redrive shop.orders billing dc1:0:3:1042",
    arguments=SUBSCRIPTION.arguments,
    options=CHOICE,
    show=_show_redrive,
)
def redrive(
    client: ManagementClient,
    topic: str,
    subscription: str,
    ids: IdsArgument = None,
    all_: AllOption = False,
    rate: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Messages a second, each DC.", show_default="50"),
    ] = None,
    dry_run: DryRunOption = False,
    **choice: str | None,
) -> bytes:
    """Deliver dead letters again, to this subscription only; see 'hermes dlq progress'."""
    body = meant(ids, all_, choice)
    body |= {"dryRun": dry_run} | ({} if rate is None else {"ratePerSecond": rate})
    return client.post(f"{_path(topic, subscription)}/redrive", body)


def _show_progress(found: dict[str, Any], topic: str, subscription: str) -> None:
    columns = ("DC", "State", "Total", "Redriven", "Failed", "Skipped", "Reason")
    names = ("datacenter", *(each.lower() for each in columns[1:]))
    datacenters = fields_of(found, "datacenters")
    rows = [[str(each.get(name, "")) for name in names] for each in datacenters]
    show_rows(columns, rows, "no datacentre has anything to re-drive", has_sentences=True)
    if failed := found.get("failed"):
        say(
            f"{counted(failed, 'message')} failed again, see 'hermes dlq list "
            f"{topic} {subscription} --since {found.get('requestedAt')}'"
        )


@management_command(
    app,
    "hermes dlq progress shop.orders billing",
    arguments=SUBSCRIPTION.arguments,
    show=_show_progress,
)
def progress(client: ManagementClient, topic: str, subscription: str) -> bytes:
    """Show how far the last re-drive has come in each datacentre, also of one that is cancelled."""
    return client.get(f"{_path(topic, subscription)}/redrive")


@management_command(app, "hermes dlq cancel shop.orders billing", arguments=SUBSCRIPTION.arguments)
def cancel(client: ManagementClient, topic: str, subscription: str) -> None:
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


def _show_expired(found: dict[str, Any], subscription: str, dry_run: bool) -> None:
    verb = "would expire" if dry_run else "expired"
    say(f"{verb} {counted_letters(found, 'expired')} of {subscription}")
    _say_unreachable(found)


@management_command(
    app,
    "hermes dlq expire shop.orders billing dc1:0:3:1042",
    "hermes dlq expire shop.orders billing --until 2d --yes",
    arguments=SUBSCRIPTION.arguments,
    options=CHOICE,
    show=_show_expired,
)
def expire(
    client: ManagementClient,
    topic: str,
    subscription: str,
    ids: IdsArgument = None,
    all_: AllOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    **choice: str | None,
) -> bytes:
    """Close dead letters that nobody will need; nothing re-drives them any more."""
    body = meant(ids, all_, choice) | {"dryRun": dry_run}
    if not ids and not dry_run:
        what = f"those dead letters of subscription {subscription} of {topic}"
        confirm(what, yes, "expire")
    return client.post(f"{_path(topic, subscription)}/expire", body)


def _path(topic: str, subscription: str) -> str:
    return f"{subscription_path(topic, subscription)}/dead-letters"
