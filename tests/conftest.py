"""Tests marked `kafka` run in guest mode: the Kafka client lives on an asyncio host loop."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any

import pytest

from hermes_actors.runtime import guest


def run_as_guest(
    main: Callable[[], Awaitable[Any]], *, clock: object = None, instruments: Sequence[object] = ()
) -> Any:
    """What pytest-trio calls in place of `trio.run`, fixtures included."""
    assert clock is None, "a test on real Kafka has no other clock than the real one"
    assert not instruments, "guest mode takes no instruments"
    return guest.run(main)


# First of all hooks: pytest-trio runs a test by the first of its marks that names a runner.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("kafka") is None or not isinstance(item, pytest.Function):
            continue
        test = item.obj
        if hasattr(test, "hypothesis"):
            _wrap_examples(test.hypothesis)
        elif inspect.iscoroutinefunction(test):
            item.add_marker(pytest.mark.trio(run=run_as_guest), append=False)


def _wrap_examples(handle: Any) -> None:
    """Each example of a hypothesis test in a guest run of its own; trio fixtures stay outside."""
    test = handle.inner_test
    if not inspect.iscoroutinefunction(test):
        return

    @wraps(test)
    def run_example(**arguments: Any) -> Any:
        async def main() -> Any:
            return await test(**arguments)

        return run_as_guest(main)

    # Hides that the test is a coroutine function, from pytest-trio too.
    del run_example.__wrapped__
    handle.inner_test = run_example
