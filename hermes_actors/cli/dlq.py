"""`hermes dlq …`: lists dead letters, re-drives them, or closes them."""

from typing import Annotated, Any

import typer

from hermes_actors.cli.administration.arguments import (
    AnySubscriptionArgument,
    AnyTopicArgument,
    SubscriptionArgument,
    TopicArgument,
)
from hermes_actors.cli.administration.resource import subscription_path
from hermes_actors.cli.command_line.bodies import TIME_HELP, optional_time
from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.cli.command_line.options import YesOption, confirm
from hermes_actors.cli.command_line.plain import command_group
from hermes_actors.cli.connection.asking import management, management_command
from hermes_actors.cli.connection.management import quoted
from hermes_actors.cli.output.render import (
    Columns,
    Fields,
    counted,
    fields_of,
    parsed_object,
    say,
    show_answer,
    show_object,
    show_table,
)
from hermes_actors.model.dead_letter import DiscardReason

IdsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="Ids of dead letters, from 'hermes dlq list'."),
]
AllOption = Annotated[bool, typer.Option("--all", help="All open dead letters.")]
ReasonOption = Annotated[
    str | None,
    typer.Option(metavar="REASON", help=f"{', '.join(DiscardReason)}; several as a,b."),
]
StatusOption = Annotated[
    str | None, typer.Option(metavar="CODE", help="The last answer's status; 0: no answer.")
]
MessageIdOption = Annotated[
    str | None, typer.Option("--message-id", metavar="ID", help="Dead letters of this message.")
]
SinceOption = Annotated[
    str | None, typer.Option(metavar="TIME", help=f"Given up at or after: {TIME_HELP}.")
]
UntilOption = Annotated[str | None, typer.Option(metavar="TIME", help="Given up before this time.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only count them.")]


def chosen(
    reason: str | None,
    status: str | None,
    message_id: str | None,
    since: str | None,
    until: str | None,
) -> dict[str, str]:
    """Return the request fields for these options. Raises UsageWrong."""
    given = {
        "reason": reason,
        "status": status,
        "messageId": message_id,
        "since": optional_time("--since", since),
        "until": optional_time("--until", until),
    }
    return {name: value for name, value in given.items() if value is not None}


def meant(ids: list[str] | None, is_all: bool, choice: dict[str, str]) -> dict[str, Any]:
    """Return the body that selects letters. Raises UsageWrong if the options select none."""
    body: dict[str, Any] = {**({"ids": ids} if ids else {}), **choice}
    if is_all == bool(body):
        raise UsageWrong(
            "choose dead letters by their ids, by options such as --reason, or with --all"
        )
    return {"all": True} if is_all else body


def counted_letters(found: Fields, field: str) -> str:
    """Return the count in that field as text; with "at least" if not all letters were checked."""
    least = "" if found.get("isComplete") else "at least "
    return f"{least}{counted(found.get(field), 'dead letter')}"


def say_letters(topic: str, subscription: str, found: Fields) -> None:
    """Print the number of dead letters, the newest one's cause, and the command to list them."""
    letters = found.get("deadLetters")
    if not isinstance(letters, dict) or not letters.get("open"):
        return
    newest = letters.get("newest") or {}
    say(
        f"{counted_letters(letters, 'open')}, the newest from {newest.get('discardedAt', '?')}: "
        f"{newest.get('reason')}; see 'hermes dlq list {topic} {subscription}'"
    )


app = command_group(
    "Dead letters: messages that a subscription gave up, kept until they are re-driven."
)


def _path(topic: str, subscription: str) -> str:
    return f"{subscription_path(topic, subscription)}/dead-letters"


def _say_unreachable(found: Fields) -> None:
    for each in fields_of(found, "unreachable"):
        say(f"{each.get('datacenter')} is left out: {each.get('reason')}")


def cause(letter: Fields) -> str:
    """Return the reason of a dead letter, with its detail."""
    return ": ".join(str(letter[each]) for each in ("reason", "detail") if letter.get(each))


_COLUMNS: Columns = {
    "Given up": "discardedAt",
    "Id": "id",
    "Message": "messageId",
    "Status": lambda letter: letter.get("status") or None,
    "Tries": "attempts",
    "Reason": cause,
}
_COLUMNS_OF_ALL: Columns = {
    "Subscription": lambda letter: f"{letter.get('topicName')} {letter.get('subscription')}",
    **_COLUMNS,
}


@management_command(
    app,
    "hermes dlq list",
    "hermes dlq list shop.orders billing",
    "hermes dlq list shop.orders billing --reason expired --since 1h",
    name="list",
)
def list_letters(
    topic: AnyTopicArgument = None,
    subscription: AnySubscriptionArgument = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number.")] = 50,
    before: Annotated[
        str | None, typer.Option(metavar="NEXT", help="Next page: the value printed below a page.")
    ] = None,
    reason: ReasonOption = None,
    status: StatusOption = None,
    message_id: MessageIdOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
) -> None:
    """List open dead letters of all datacentres, newest first.

    Of one subscription, of a topic, or of all subscriptions that you manage.
    """
    params = chosen(reason, status, message_id, since, until) | {"limit": str(limit)}
    if before is not None:
        params["before"] = before
    if topic and subscription:
        show_answer(management().get(_path(topic, subscription), params), _show_letters)
        return
    if before is not None:
        raise UsageWrong(
            "--before continues the list of one subscription: give TOPIC and SUBSCRIPTION"
        )
    params |= {"topicName": topic} if topic else {}
    show_answer(management().get("/dead-letters", params), _show_all)


def _show_letters(found: Fields, columns: Columns = _COLUMNS) -> None:
    show_table(columns, fields_of(found, "deadLetters"), "no open dead letters")
    _say_unreachable(found)
    if found.get("next"):
        say(f"there are more: --before {found['next']}")


def _show_all(found: Fields) -> None:
    _show_letters(found, _COLUMNS_OF_ALL)
    if not found.get("isComplete"):
        say("there may be more: raise --limit, name a subscription, or narrow it with --since")


@management_command(app, "hermes dlq show shop.orders billing dc1:0:3:1042")
def show(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    letter: Annotated[str, typer.Argument(metavar="ID", help="From 'hermes dlq list'.")],
) -> None:
    """Show one dead letter with its message, key and headers."""
    show_object(management().get(f"{_path(topic, subscription)}/{quoted(letter)}"))


@management_command(
    app,
    "hermes dlq redrive shop.orders billing --all --dry-run",
    "hermes dlq redrive shop.orders billing --reason expired --rate 20",
    "hermes dlq redrive shop.orders billing dc1:0:3:1042",
)
def redrive(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    ids: IdsArgument = None,
    all_: AllOption = False,
    rate: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Messages per second in each DC.", show_default="50"),
    ] = None,
    dry_run: DryRunOption = False,
    reason: ReasonOption = None,
    status: StatusOption = None,
    message_id: MessageIdOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
) -> None:
    """Deliver dead letters again, to this subscription only; see 'hermes dlq progress'."""
    body = meant(ids, all_, chosen(reason, status, message_id, since, until))
    body |= {"dryRun": dry_run} | ({} if rate is None else {"ratePerSecond": rate})
    content = management().post(f"{_path(topic, subscription)}/redrive", body)

    def show(found: Fields) -> None:
        count = f"{counted_letters(found, 'matching')} of {subscription}"
        if dry_run:
            say(f"would re-drive {count}")
        else:
            say(
                f"re-driving {count}, {found.get('ratePerSecond')}/s in each datacentre; "
                f"see 'hermes dlq progress {topic} {subscription}'"
            )
        _say_unreachable(found)

    show_answer(content, show)


_PROGRESS_COLUMNS = {
    "DC": "datacenter",
    "State": "state",
    "Total": "total",
    "Redriven": "redriven",
    "Failed": "failed",
    "Skipped": "skipped",
    "Reason": "reason",
}


@management_command(app, "hermes dlq progress shop.orders billing")
def progress(topic: TopicArgument, subscription: SubscriptionArgument) -> None:
    """Show the progress of the last re-drive in each datacentre, also if it was cancelled."""

    def show(found: Fields) -> None:
        datacenters = fields_of(found, "datacenters")
        show_table(_PROGRESS_COLUMNS, datacenters, "no datacentre has anything to re-drive")
        if failed := found.get("failed"):
            say(
                f"{counted(failed, 'message')} failed again, see 'hermes dlq list "
                f"{topic} {subscription} --since {found.get('requestedAt')}'"
            )

    show_answer(management().get(f"{_path(topic, subscription)}/redrive"), show)


@management_command(app, "hermes dlq cancel shop.orders billing")
def cancel(topic: TopicArgument, subscription: SubscriptionArgument) -> None:
    """Cancel a re-drive. Letters in flight are finished; the others stay open."""
    path = f"{_path(topic, subscription)}/redrive"
    before = parsed_object(management().get(path))
    if before.get("isDone"):
        say(
            f"the last re-drive of {subscription} of {topic} is already done "
            f"({before.get('redriven')} re-driven, {before.get('failed')} failed): "
            "nothing to cancel"
        )
        return
    management().delete(path)
    say(
        f"cancelled the re-drive of subscription {subscription} of {topic}; letters that it did "
        f"not deliver stay open, see 'hermes dlq progress {topic} {subscription}'"
    )


@management_command(
    app,
    "hermes dlq expire shop.orders billing dc1:0:3:1042",
    "hermes dlq expire shop.orders billing --until 2d --yes",
)
def expire(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    ids: IdsArgument = None,
    all_: AllOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    reason: ReasonOption = None,
    status: StatusOption = None,
    message_id: MessageIdOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
) -> None:
    """Close dead letters that are not needed any more; they cannot be re-driven afterwards."""
    body = meant(ids, all_, chosen(reason, status, message_id, since, until))
    if not ids and not dry_run:
        what = f"those dead letters of subscription {subscription} of {topic}"
        confirm(what, yes, "expire")
    content = management().post(f"{_path(topic, subscription)}/expire", body | {"dryRun": dry_run})

    def show(found: Fields) -> None:
        verb = "would expire" if dry_run else "expired"
        say(f"{verb} {counted_letters(found, 'expired')} of {subscription}")
        _say_unreachable(found)

    show_answer(content, show)
