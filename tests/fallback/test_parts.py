"""The order of the remotes, and the bound of what runs on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.config import ConfigError
from hermes_actors.fallback.account import Losers, OwnAppend
from hermes_actors.fallback.node import in_order
from hermes_actors.telemetry.metrics import Counter


def test_remotes_stand_as_configured_else_by_name() -> None:
    assert in_order([], ["dc3", "dc2"]) == ["dc2", "dc3"]
    assert in_order(["dc3", "dc2", "dc3"], ["dc2", "dc3", "dc4"]) == ["dc3", "dc2"]


def test_a_remote_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"fallback\.remotes: 'dc9'.*dc2, dc3"):
        in_order(["dc9"], ["dc3", "dc2"])


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=60))
async def test_what_runs_on_is_never_too_much_and_the_oldest_goes_first(steps) -> None:
    cancelled = Counter()
    losers = Losers(5, 100, cancelled)
    running: list[OwnAppend] = []
    for size_bytes, ends in steps:
        if ends and running:
            ended = running.pop(size_bytes % len(running))
            losers.ended(ended)
            losers.ended(ended)
            assert not ended.scope.cancel_called
        else:
            append = OwnAppend(size_bytes)
            running.append(append)
            losers.adopt(append)
            gone = [each for each in running if each.scope.cancel_called]
            assert gone == running[: len(gone)], "the oldest"
            running = running[len(gone) :]
        assert len(losers) == len(running) <= 5
        assert losers.size_bytes == sum(each.size_bytes for each in running) <= 100
