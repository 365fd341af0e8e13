"""Who may own something, while some are drained and others leave."""

import pytest

from hermes_actors.coordination.commands import Join, Stopping
from hermes_actors.coordination.room import (
    DEFAULT_LIMITS,
    OwnershipLimits,
    drained,
    is_drain_ignored,
    no_room,
)
from hermes_actors.coordination.state import CoordinationState


@pytest.fixture
def state():
    found = CoordinationState()
    for offset, boot in enumerate("ab"):
        found.apply(offset, 1_000, Join(boot, f"node-{boot}"))
    return found


def test_a_drain_counts_while_another_node_takes_part(state):
    assert drained(state, ("node-a",)) == ("node-a",)
    assert not is_drain_ignored(state, ("node-a",))
    assert drained(state, ("node-a", "node-b")) == ()
    assert is_drain_ignored(state, ("node-a", "node-b"))


def test_a_drained_node_carries_all_as_soon_as_the_only_other_one_is_about_to_leave(state):
    state.apply(2, 1_000, Stopping("b"))
    assert drained(state, ("node-a",)) == ()
    assert is_drain_ignored(state, ("node-a",))


def test_who_is_about_to_leave_has_no_room(state):
    state.apply(2, 1_000, Stopping("b"))
    assert no_room(state, (), DEFAULT_LIMITS) is None
    assert "nodes: 1" in no_room(state, (), OwnershipLimits(tasks_max=0))


def test_where_all_leave_no_drain_is_ignored(state):
    for offset, boot in enumerate("ab", start=2):
        state.apply(offset, 1_000, Stopping(boot))
    assert not is_drain_ignored(state, ("node-a",))
