"""The dead letters that a command means, by ids or by options, and how many there are."""

from typing import Annotated, Any

import typer

from hermes_actors.cli.command_line.bodies import TIME_HELP, optional_time
from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.cli.output.render import Fields, counted, say
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
    cause = ": ".join(str(newest[each]) for each in ("reason", "detail") if newest.get(each))
    say(
        f"{counted_letters(letters, 'open')}, the newest of {newest.get('discardedAt', '?')}: "
        f"{cause}; see 'hermes dlq list {topic} {subscription}'"
    )
