"""The fate of a publish: whatever happens in whatever order, it is told once, and truly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.errors import ErrorCode, HermesError
from hermes_actors.fallback.spool.store import SpoolUnavailable
from hermes_actors.log.base import RefusedRecord, Stored, UnavailableRecord, UnknownRecord
from hermes_actors.model.message import Message
from hermes_actors.publisher.answers import Abandoned, Buffered
from hermes_actors.publisher.pending import (
    KEPT,
    QUEUED,
    SENT,
    Limits,
    Pending,
    PendingState,
)
from tests.hand_clock import HandClock
from tests.publisher.pendings import pending_of, route_of

KINDS = (Stored(7), RefusedRecord("no"), UnavailableRecord("away"), UnknownRecord("torn"))
OUTCOMES = st.sampled_from(KINDS)
ACTIONS = ("validate", "queue", "send", "conclude", "keep", "write", "tear", "expire", "abandon")


class Disk:
    """A spool of which the test says whether it takes an offer, and when its disk is done."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.takes = True
        self.offered: list[bytes] = []
        self.done = None
        self.is_written = False
        self.concluded_as: list[bool] = []

    def offer(self, entries, done, *, is_sent) -> object:
        if not self.takes:
            return None
        assert self.done is None, "offered twice"
        self.offered = [entry.message.body for entry in entries]
        self.done = done
        return self

    def concluded(self, _offer, are_stored) -> None:
        self.concluded_as += are_stored


class Fate:
    """One Pending, driven by a list of actions; those that cannot happen in its state do not."""

    def __init__(self, count: int, *, has_spool: bool) -> None:
        self.disk = Disk()
        self.told: list[PendingState] = []
        spool = self.disk if has_spool else None
        self.route = route_of(spool=spool)
        limits = Limits(50, 65, 1_065) if has_spool else Limits(65, 65, 65)
        self.pending = pending_of(0.0, limits, self.note, self.route, count=count)
        self.bodies = [b"%d" % number for number in range(count)]
        self.limit_ms: int | None = limits.first_ms
        self.runs = 0
        self.was_concluded = False

    def note(self, pending: Pending) -> None:
        self.told.append(pending.state)

    def act(self, action: str, outcomes: list, takes: bool) -> None:
        pending, disk = self.pending, self.disk
        disk.takes = takes
        state, was_done = pending.state, pending.is_done
        if action == "validate" and state == PendingState.ADMITTED:
            pending.validating()
        elif action == "queue" and state == PendingState.VALIDATING:
            pending.queued([Message("i", body, 0) for body in self.bodies], None, 1)
        elif action == "send" and state in (QUEUED, SENT) and not was_done:
            pending.sent()
            self.runs = 1
        elif action == "conclude" and self.runs:
            self.runs = 0
            self.was_concluded = True
            pending.conclude(outcomes[: len(self.bodies)])
        elif action == "keep" and state in (QUEUED, SENT) and not self.was_concluded:
            pending.keep()
        elif action in ("write", "tear") and disk.done is not None:
            done, disk.done = disk.done, None
            disk.is_written = action == "write"
            done(None if disk.is_written else SpoolUnavailable("disk", "it is broken"))
        elif action == "expire" and self.limit_ms is not None and not pending.is_answered:
            self.limit_ms = pending.expire(self.limit_ms)
        elif action == "abandon" and state == PendingState.ADMITTED:
            pending.settle(Abandoned())
        assert pending.state >= state, "it went back"
        assert not was_done or pending.is_done, "it is open again"

    def outcomes(self) -> list:
        pending = self.pending
        return list(pending.outcomes or [pending.outcome] * len(self.bodies))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(ACTIONS), st.lists(OUTCOMES, min_size=3, max_size=3), st.booleans()
        ),
        max_size=40,
    ),
    st.integers(1, 3),
    st.booleans(),
)
def test_it_is_told_once_and_truly_whatever_happens(steps, count: int, has_spool: bool) -> None:
    fate = Fate(count, has_spool=has_spool)
    stored: list[bool] = []
    for action, outcomes, takes in steps:
        was_concluded = fate.was_concluded
        fate.act(action, outcomes, takes)
        if fate.was_concluded and not was_concluded:
            stored = [type(each) is Stored for each in outcomes[:count]]
        pending = fate.pending
        assert len(fate.told) == pending.is_answered
        assert fate.route.drain.in_flight == 1 - pending.is_answered
        assert pending.is_done == (pending.state >= KEPT)
        if pending.is_answered:
            assert pending.messages == (), "answered, and still holding its bodies"
            for at, each in enumerate(fate.outcomes()):
                if isinstance(each, Buffered):
                    assert fate.disk.is_written
                    assert fate.bodies[at] in fate.disk.offered
                if isinstance(each, Stored):
                    assert stored[at]


@given(st.lists(st.sampled_from(ACTIONS), max_size=20))
def test_a_limit_leads_to_an_answer_whatever_came_before(actions: list[str]) -> None:
    fate = Fate(2, has_spool=True)
    for action in actions:
        fate.act(action, list(KINDS[:3]), True)
    for _ in range(3):
        fate.act("expire", [], False)
    assert fate.pending.is_answered


def test_what_is_still_validated_when_its_time_ends_is_not_kept() -> None:
    fate = Fate(1, has_spool=True)
    fate.act("validate", [], True)
    assert fate.pending.expire(50) == 65
    assert fate.disk.offered == []
    assert fate.pending.expire(65) is None
    assert isinstance(fate.pending.outcome, HermesError)
    assert "was not stored" in fate.pending.outcome.message


def test_what_is_kept_says_what_it_knows_when_the_disk_is_too_slow() -> None:
    for action, text in (("send", "may have been stored"), ("keep", "may have been stored")):
        fate = Fate(1, has_spool=True)
        for each in ("validate", "queue", action):
            fate.act(each, [], True)
        assert fate.pending.expire(50) == 1_065
        assert fate.pending.expire(1_065) is None
        assert text in fate.pending.outcome.message


@pytest.mark.parametrize(
    ("actions", "text", "code"),
    [
        (("validate", "queue"), "was not stored", ErrorCode.OTHER),
        (("validate", "queue", "send"), "may have been stored", ErrorCode.SENDING_TO_KAFKA_TIMEOUT),
    ],
)
def test_what_cannot_join_what_is_kept_says_whether_a_log_was_given_it(actions, text, code) -> None:
    fate = Fate(1, has_spool=True)
    for each in actions:
        fate.act(each, [], True)
    fate.disk.takes = False
    fate.pending.join_kept()
    assert text in fate.pending.outcome.message
    assert fate.pending.outcome.code is code
