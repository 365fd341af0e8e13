"""The checkers of folds, registers, times to live and the order of keys can fail."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from hermes_actors.model.dead_letter import DiscardReason, Letter
from hermes_actors.model.topic import Ack
from hermes_chaos.sim.checkers.aging import TimeToLiveIsKept
from hermes_chaos.sim.checkers.checker import Checker
from hermes_chaos.sim.checkers.folding import FoldsAgree
from hermes_chaos.sim.checkers.ordering import KeysKeepTheirOrder
from hermes_chaos.sim.environment.clock import EPOCH_MS
from hermes_chaos.sim.history.events import (
    Attempted,
    Dropped,
    Ended,
    Event,
    Forgotten,
    Lettering,
    Published,
    Stored,
)
from hermes_chaos.sim.history.standing import Folded, Skewed
from hermes_chaos.sim.workload.subject import Audience, Subject


def found(checker: Checker, events: Iterable[Event]) -> list[str]:
    for event in events:
        checker.watch(event)
    checker.finish()
    return checker.violations


# Folds

ONE = Folded("dc1-n1#1", "dc1", "coordination", 1, 7, b"one", 1.0)
OTHER = replace(ONE, life="dc1-n2#1")


@pytest.mark.parametrize("changed", [{"position": 8}, {"dc": "dc2"}, {"kind": "metadata"}])
def test_elsewhere_in_the_log_another_state_is_none_of_theirs(changed: dict[str, object]) -> None:
    checker = FoldsAgree()
    assert found(checker, [ONE, replace(OTHER, content=b"two", **changed)]) == []
    assert checker.examined == 0


def test_who_folded_what_is_forgotten_is_compared_to_nobody_until_it_begins_anew() -> None:
    forgotten = Forgotten("dc1", 2.0)
    anew = replace(ONE, content=b"two")
    assert found(FoldsAgree(), [ONE, forgotten, replace(OTHER, content=b"two"), ONE]) == []
    assert found(FoldsAgree(), [ONE, forgotten, OTHER, replace(anew, begun=2)])


# Registers


def metadata(
    registers: Mapping[str, tuple[int, int, str, bytes | None]], life: str = "dc1-n1#1"
) -> Folded:
    return Folded(life, life[:3], "metadata", 0, 1, b"", 1.0, registers)


# Times to live

LIFE = "dc1-n1#1"
SUBJECT = Subject(
    {"g.t": Ack.ALL},
    [
        Audience("g.t$reading", "g.t", "g1", ttl_s=1.0),
        Audience("g.t$published", "g.t", "g2", ttl_s=1.0, is_ttl_from_publication=True),
    ],
)
STORED = Stored(("dc1", "g_t", 0), 0, "id", b"", "g.t", timestamp_ms=EPOCH_MS)


def attempt(name: str, retries: int, at_s: float) -> Attempted:
    return Attempted(LIFE, 1, name, "id", retries, at_s)


def failed(name: str, retries: int, at_s: float) -> list[Event]:
    each = attempt(name, retries, at_s)
    return [each, Ended(each, 500, "", at_s + 0.01)]


def test_an_attempt_that_says_nothing_is_made_once_more_whatever_its_age() -> None:
    events = [STORED, attempt("g.t$published", 0, 0.9), attempt("g.t$published", 0, 3.0)]
    assert found(TimeToLiveIsKept(SUBJECT), events) == []


def test_the_wall_clock_that_counts_is_the_consumer_s() -> None:
    name = "g.t$published"
    events = [Skewed("dc1-n1", -2_000, 0.0), STORED, *failed(name, 0, 1.0), *failed(name, 1, 2.5)]
    assert found(TimeToLiveIsKept(SUBJECT), [*events, attempt(name, 2, 2.6)]) == []


@pytest.mark.parametrize(("given_up_s", "is_wrong"), [(2.4, True), (2.9, False)])
def test_what_is_given_up_for_its_age_is_as_old_as_that(given_up_s: float, is_wrong: bool) -> None:
    name, at_ms = "g.t$reading", EPOCH_MS + int(given_up_s * 1_000)
    reason = DiscardReason.EXPIRED
    letter = Letter(
        *("dc1", name, 1, "g_t", 0, 0, 0, None, b"", (), "id", reason, "", 1, 500, at_ms)
    )
    events = [STORED, *failed(name, 0, 2.0), Lettering(LIFE, "dc1", letter, given_up_s)]
    assert bool(found(TimeToLiveIsKept(SUBJECT), events)) is is_wrong


# Keys keep their order


def published(serial: int, at_s: float, key: str = "k", status: int = 201) -> Published:
    return Published(
        serial,
        "g.t",
        b"",
        "dc1-n1",
        status,
        f"id{serial}",
        "dc1",
        key=key,
        life=LIFE,
        began_s=at_s,
        ended_s=at_s + 0.5,
    )


def at(serial: int, offset: int) -> Stored:
    return Stored(("dc2", "g_t", 0), offset, f"id{serial}", b"", "g.t")


def test_a_copy_that_comes_later_and_one_that_was_lost_are_no_disorder() -> None:
    both = [published(1, 1.0), published(2, 1.1)]
    assert found(KeysKeepTheirOrder(), [at(1, 0), at(2, 1), at(1, 2), *both]) == []
    lost = Dropped(("dc2", "g_t", 0), 0)
    assert found(KeysKeepTheirOrder(), [at(2, 0), lost, at(1, 0), at(2, 1), *both]) == []


def test_other_keys_and_what_was_kept_have_no_order() -> None:
    other = [published(1, 1.0), published(2, 1.1, key="other")]
    kept = [published(1, 1.0, status=202), published(2, 1.1)]
    for both in (other, kept):
        assert found(KeysKeepTheirOrder(), [at(2, 0), at(1, 1), *both]) == []
