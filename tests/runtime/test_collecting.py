"""Long full collections set aside what they leave, and not for good."""

import gc
from typing import Any

import pytest

from hermes_actors.runtime.collecting import ALL_INTERVAL_S, LONG_S, long_lived_set_aside


class _Cycle:
    gone: object

    def __init__(self) -> None:
        self.me = self


@pytest.mark.slow
def test_garbage_that_was_set_aside_is_found_after_ten_minutes() -> None:
    now_s, found = 0.0, list[bool]()

    def taking_long() -> float:
        nonlocal now_s
        now_s += 2 * LONG_S
        return now_s

    with long_lived_set_aside(taking_long):
        cycle = _Cycle()
        cycle.gone = type("Gone", (), {"__del__": lambda _self: found.append(True)})()
        gc.collect()
        assert gc.get_freeze_count() > 0
        del cycle
        gc.collect()
        assert found == []
        now_s += ALL_INTERVAL_S
        gc.collect()
        assert found == [True]
    gc.freeze()


def test_short_and_young_collections_set_nothing_aside() -> None:
    before = gc.get_freeze_count()
    with long_lived_set_aside(lambda: 0.0):
        gc.collect()
        gc.collect(1)
    assert gc.get_freeze_count() <= before


def test_the_collector_is_as_before_after_the_block() -> None:
    before, thresholds = list(gc.callbacks), gc.get_threshold()
    with long_lived_set_aside(lambda: 0.0):
        assert len(gc.callbacks) == len(before) + 1
    assert gc.callbacks == before
    assert gc.get_threshold() == thresholds


@pytest.mark.slow
def test_a_full_window_of_requests_causes_no_collection() -> None:
    collections: list[int] = []

    def counted(phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            collections.append(info["generation"])

    with long_lived_set_aside(lambda: 0.0):
        gc.collect()
        gc.callbacks.append(counted)
        try:
            under_way = [[number] for number in range(5_000)]
        finally:
            gc.callbacks.remove(counted)
    assert len(under_way) == 5_000
    assert collections == []
