"""Shared by all tests: the number of examples of properties, and one real broker, started on
demand.

Tests marked `guest` run in guest mode, because the HTTP servers and the sender live on an asyncio
host loop; so do those marked `kafka`, because of its client.
"""

import faulthandler
import gc
import inspect
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import wraps
from typing import Any

import pytest
import trio
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, settings

from hermes_actors.runtime import guest
from hermes_actors.runtime.collecting import MIDDLE_MAX, YOUNG_MAX
from hermes_chaos.live.logs import RETENTION_RESTS
from hermes_local.kafka import Cluster

HEAP_MB = 384

# `make check` looks for quick failures, `make test` and runs without a profile for the rest. A busy
# machine's slowness is not a failure.
_UNHURRIED: Any = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("check", max_examples=10, **_UNHURRIED)
settings.register_profile("full", max_examples=100, **_UNHURRIED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "full"))


def run_as_guest(
    main: Callable[[], Awaitable[Any]], *, clock: object = None, instruments: Sequence[object] = ()
) -> Any:
    """Called by pytest-trio instead of `trio.run`, including fixtures."""
    assert clock is None, "a guest has no other clock than the real one"
    assert not instruments, "guest mode takes no instruments"
    return guest.run(main)


def _by_its_fixtures_clock(item: pytest.Function) -> Callable[..., Any]:
    """Runs a test with the autojump clock if only one of its fixtures asks for it.

    pytest-trio looks only at the test's own arguments, and would use the real clock.
    """

    def run(main: Callable[[], Awaitable[Any]], *, clock: Any = None, **options: Any) -> Any:
        return trio.run(main, clock=clock or item.funcargs["autojump_clock"], **options)

    return run


# First of all hooks, because pytest-trio uses the first mark that names a runner.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Slow files start first: a file belongs to one process, so none should start last.
    long = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in long)
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        if item.get_closest_marker("kafka") is None and item.get_closest_marker("guest") is None:
            if "autojump_clock" in item.fixturenames:
                item.add_marker(pytest.mark.trio(run=_by_its_fixtures_clock(item)), append=False)
            continue
        test = item.obj
        if hasattr(test, "hypothesis"):
            _wrap_examples(test.hypothesis)
        elif inspect.iscoroutinefunction(test):
            item.add_marker(pytest.mark.trio(run=run_as_guest), append=False)


def _wrap_examples(handle: Any) -> None:
    """Run each example of a hypothesis test in its own guest run; trio fixtures stay outside."""
    test = handle.inner_test
    if not inspect.iscoroutinefunction(test):
        return

    @wraps(test)
    def run_example(**arguments: Any) -> Any:
        async def main() -> Any:
            return await test(**arguments)

        return run_as_guest(main)

    # Hides from everyone, including pytest-trio, that the test is a coroutine function.
    del run_example.__wrapped__
    handle.inner_test = run_example


def pytest_configure() -> None:
    # A shell starts background processes with SIGINT ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


# An exception from a signal is lost in uvloop's callbacks and breaks trio's scheduler. So a hang
# ends its process, after printing its threads' stacks. xdist names the test and continues with
# another.
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool:
    errors = item.config.stash[fault_handler_stderr_fd_key]
    faulthandler.dump_traceback_later(settings.timeout, exit=True, file=errors)
    return True


def pytest_timeout_cancel_timer() -> bool:
    faulthandler.cancel_dump_traceback_later()
    return True


def pytest_collection() -> None:
    # Imported and collected objects live until the end, so collecting them is useless.
    gc.disable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()
    # Rare, as in a node: by default it takes an eighth of the time.
    gc.set_threshold(YOUNG_MAX, MIDDLE_MAX)


@pytest.fixture(scope="session")
def kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker for all tests, which use different names of topics and groups.

    It stays up: a test that breaks, stops or fills a broker makes its own cluster.
    """
    folder = tmp_path_factory.mktemp("kafka")
    with Cluster(folder, heap_mb=HEAP_MB, settings=RETENTION_RESTS) as cluster:
        yield cluster


@pytest.fixture
def make_kafka_cluster(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., Cluster]]:
    """`make_kafka_cluster(brokers=3, …)`: a started cluster for the test, ended with it."""
    clusters: list[Cluster] = []

    def make(**options: Any) -> Cluster:
        folder = options.pop("folder", None) or tmp_path_factory.mktemp("kafka-own")
        settings = RETENTION_RESTS | options.pop("settings", {})
        cluster = Cluster(folder, settings=settings, **{"heap_mb": HEAP_MB, **options})
        clusters.append(cluster)
        cluster.start()
        return cluster

    yield make
    for cluster in clusters:
        # Kill at once: the data is not needed any more, and paused brokers would not end otherwise.
        cluster.kill()
