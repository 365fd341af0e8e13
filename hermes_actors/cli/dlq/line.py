"""How many dead letters there are: as a count, and as the line that other commands end with."""

from typing import Any

from hermes_actors.cli.output.render import counted, printable, say


def counted_letters(found: dict[str, Any], field: str) -> str:
    """The count in that field, "at least" where not all have been looked at."""
    least = "" if found.get("isComplete") else "at least "
    return f"{least}{counted(found.get(field), 'dead letter')}"


def say_letters(topic: str, subscription: str, found: dict[str, Any]) -> None:
    """How many dead letters there are, the newest one's cause, and where to see them."""
    letters = found.get("deadLetters")
    if not isinstance(letters, dict) or not letters.get("open"):
        return
    newest = letters.get("newest") or {}
    cause = ": ".join(str(newest[each]) for each in ("reason", "detail") if newest.get(each))
    say(
        printable(
            f"{counted_letters(letters, 'open')}, the newest of "
            f"{newest.get('discardedAt', '?')}: {cause}; "
            f"see 'hermes dlq list {topic} {subscription}'"
        )
    )
