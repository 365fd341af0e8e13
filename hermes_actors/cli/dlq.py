"""`hermes dlq …`: a subscription's dead letters, looked at, delivered again, or closed."""

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
    list[str] | None, typer.Argument(metavar="ID", help="Ids of letters, from 'hermes dlq list'.")
]
AllOption = Annotated[bool, typer.Option("--all", help="All open letters.")]
ReasonOption = Annotated[
    str | None,
    typer.Option(metavar="REASON", help=f"{', '.join(DiscardReason)}; or several, a,b."),
]
StatusOption = Annotated[
    str | None, typer.Option(metavar="CODE", help="The last answer's status; 0: none came.")
]
MessageIdOption = Annotated[
    str | None, typer.Option("--message-id", metavar="ID", help="Letters of this message.")
]
SinceOption = Annotated[
    str | None, typer.Option(metavar="TIME", help=f"Given up then or later: {TIME_HELP}.")
]
UntilOption = Annotated[str | None, typer.Option(metavar="TIME", help="Given up before then.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only count them.")]


def chosen(
    reason: str | None,
    status: str | None,
    message_id: str | None,
    since: str | None,
    until: str | None,
) -> dict[str, str]:
    """The fields that these options give, as they are sent. Raises UsageWrong."""
    given = {
        "reason": reason,
        "status": status,
        "messageId": message_id,
        "since": optional_time("--since", since),
        "until": optional_time("--until", until),
    }
    return {name: value for name, value in given.items() if value is not None}


def meant(ids: list[str] | None, is_all: bool, choice: dict[str, str]) -> dict[str, Any]:
    """The body that says which letters. Raises UsageWrong where the options do not."""
    body: dict[str, Any] = {**({"ids": ids} if ids else {}), **choice}
    if is_all == bool(body):
        raise UsageWrong("say which dead letters: their ids, or options that mean some, or --all")
    return {"all": True} if is_all else body


def counted_letters(found: Fields, field: str) -> str:
    """The count in that field, "at least" where not all have been looked at."""
    least = "" if found.get("isComplete") else "at least "
    return f"{least}{counted(found.get(field), 'dead letter')}"


def say_letters(topic: str, subscription: str, found: Fields) -> None:
    """How many dead letters there are, the newest one's cause, and where to see them."""
    letters = found.get("deadLetters")
    if not isinstance(letters, dict) or not letters.get("open"):
        return
    newest = letters.get("newest") or {}
    say(
        f"{counted_letters(letters, 'open')}, the newest of {newest.get('discardedAt', '?')}: "
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
    """The reason of a dead letter, with its detail."""
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
    limit: Annotated[int, typer.Option(min=1, max=500, help="The most to show.")] = 50,
    before: Annotated[
        str | None, typer.Option(metavar="NEXT", help="The page after one that said so.")
    ] = None,
    reason: ReasonOption = None,
    status: StatusOption = None,
    message_id: MessageIdOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
) -> None:
    """List open dead letters of all datacentres, newest first: of a subscription, a topic, or all
    that you manage.
    """
    params = chosen(reason, status, message_id, since, until) | {"limit": str(limit)}
    if before is not None:
        params["before"] = before
    if topic and subscription:
        show_answer(management().get(_path(topic, subscription), params), _show_letters)
        return
    if before is not None:
        raise UsageWrong("--before goes on with the letters of one subscription: name it")
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
        say("there may be more: raise --limit, name a subscription, or choose with --since")


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
        typer.Option(min=1, metavar="N", help="Messages a second, each DC.", show_default="50"),
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
                f"re-drives {count}, {found.get('ratePerSecond')}/s in each datacentre; "
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
    """Show how far the last re-drive has come in each datacentre, also a cancelled one."""

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
    """Stop a re-drive; what is under way still ends, the other letters stay open."""
    path = f"{_path(topic, subscription)}/redrive"
    before = parsed_object(management().get(path))
    if before.get("isDone"):
        say(
            f"the last re-drive of {subscription} of {topic} was done already "
            f"({before.get('redriven')} re-driven, {before.get('failed')} failed): "
            "nothing to cancel"
        )
        return
    management().delete(path)
    say(
        f"cancelled the re-drive of subscription {subscription} of {topic}; what it has not "
        f"delivered stays open, see 'hermes dlq progress {topic} {subscription}'"
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
    """Close dead letters that nobody will need; nothing re-drives them any more."""
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
