"""Long collections set aside what they leave, and not for good."""

import gc
from typing import Any

import pytest

from hermes_actors.runtime.collecting import ALL_INTERVAL_S, LongLived, long_lived_set_aside


class Heap:
    """A collector whose full collections take as long as a test says."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.done: list[str] = []
        self.callback = LongLived(
            lambda: self.now_s,
            lambda: self.done.append("freeze"),
            lambda: self.done.append("unfreeze"),
        )

    def collect(self, takes_s: float, generation: int = 2) -> list[str]:
        self.done.clear()
        self.callback("start", {"generation": generation})
        self.now_s += takes_s
        self.callback("stop", {"generation": generation, "collected": 0})
        return self.done


@pytest.fixture
def heap() -> Heap:
    return Heap()


def test_what_a_long_full_collection_leaves_is_set_aside(heap: Heap) -> None:
    assert heap.collect(0.019) == []
    assert heap.collect(0.021) == ["freeze"]


def test_young_collections_set_nothing_aside(heap: Heap) -> None:
    assert heap.collect(1.0, generation=1) == []
    assert heap.collect(1.0, generation=0) == []


def test_after_ten_minutes_one_looks_at_everything_again(heap: Heap) -> None:
    heap.now_s += ALL_INTERVAL_S - 1
    assert heap.collect(0.05) == ["freeze"]
    heap.now_s += 1
    # Before it begins, so that this very one finds what has become garbage meanwhile.
    assert heap.collect(0.4) == ["unfreeze", "freeze"]
    heap.now_s += 60
    assert heap.collect(0.05) == ["freeze"]


class _Cycle:
    gone: object

    def __init__(self) -> None:
        self.me = self


@pytest.mark.slow
def test_garbage_that_was_set_aside_is_found_later() -> None:
    now_s, before = 0.0, gc.get_freeze_count()
    collector = LongLived(lambda: now_s)
    cycle = _Cycle()
    found: list[bool] = []
    cycle.gone = type("Gone", (), {"__del__": lambda _self: found.append(True)})()
    gc.collect()
    collector("start", {"generation": 2})
    now_s = 1.0
    collector("stop", {"generation": 2})
    assert gc.get_freeze_count() > before
    del cycle
    gc.collect()
    assert found == []
    now_s = ALL_INTERVAL_S
    collector("start", {"generation": 2})
    gc.collect()
    assert found == [True]


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
