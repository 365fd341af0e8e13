"""The line on a subscription's dead letters, which several commands end with."""

from typing import Any

from hermes_actors.cli.output.render import counted, printable, say


def say_letters(topic: str, subscription: str, found: dict[str, Any]) -> None:
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
