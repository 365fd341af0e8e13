"""Records that not all builds know: those who know them and those who do not have one state."""

import pytest

from hermes_actors.coordination.commands import (
    Assignment,
    Join,
    Plan,
    Release,
    Resign,
    Said,
    Stopping,
    Target,
    TermClaim,
)
from hermes_actors.coordination.state import CoordinationState

SUB = "shop.orders$push"


@pytest.mark.parametrize("word", [Stopping("b"), Stopping("a"), Resign("a", 1, "it fails")])
def test_an_added_word_counts_for_nothing_once_a_member_is_of_another_version(word: Said) -> None:
    """It was said while all were of one, and the other came before it was stored."""
    knowing, older = CoordinationState(), CoordinationState()
    for state, read in ((knowing, word), (older, None)):
        story: list[Said | None] = [
            Join(boot, f"node-{boot}", 1.0, version)
            for boot, version in (("a", "1"), ("b", "1"), ("c", "0"))
        ]
        story += [
            TermClaim("a", 1),
            Plan("a", 1, -1, (Assignment(SUB, (Target("b", (0, 1)),)),)),
            read,
            # What it releases is its own again, unless it stops.
            Release("b", SUB, 4),
        ]
        for offset, said in enumerate(story):
            state.apply(offset, 1_700_000_000_000, said)
    assert [grant.boot for grant in older.grants(SUB)] == ["b"]
    assert knowing == older
