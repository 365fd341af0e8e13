"""What all tests share: how many examples a property has, and one real broker, started when needed.

Tests marked `guest` run in guest mode, because the HTTP servers and the sender live on an asyncio
host loop, and so do those marked `kafka`, because its client does.
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
from hermes_chaos.live.logs import RETENTION_RESTS
from hermes_local.kafka import Cluster

HEAP_MB = 384

# `make check` looks for what breaks at once, `make test` and whoever names no profile for the rest.
# That a busy machine is slow is no failure.
_UNHURRIED: Any = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("check", max_examples=10, **_UNHURRIED)
settings.register_profile("full", max_examples=100, **_UNHURRIED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "full"))


def run_as_guest(
    main: Callable[[], Awaitable[Any]], *, clock: object = None, instruments: Sequence[object] = ()
) -> Any:
    """What pytest-trio calls in place of `trio.run`, fixtures included."""
    assert clock is None, "a guest has no other clock than the real one"
    assert not instruments, "guest mode takes no instruments"
    return guest.run(main)


def _by_its_fixtures_clock(item: pytest.Function) -> Callable[..., Any]:
    """Runs a test by the autojump clock that only a fixture of it asks for.

    pytest-trio looks at the arguments of the test alone, and would run it by the real clock.
    """

    def run(main: Callable[[], Awaitable[Any]], *, clock: Any = None, **options: Any) -> Any:
        return trio.run(main, clock=clock or item.funcargs["autojump_clock"], **options)

    return run


# First of all hooks: pytest-trio runs a test by the first of its marks that names a runner.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Files that take long start first: where a file is one process's, none waits for the last.
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


def pytest_configure() -> None:
    # A shell starts what runs in the background with SIGINT ignored, and each child inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


# What a signal raises is lost in uvloop's callbacks and breaks trio's scheduler: a hang ends its
# process, after the stacks of its threads. xdist tells which test it was, and goes on with another.
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool:
    errors = item.config.stash[fault_handler_stderr_fd_key]
    faulthandler.dump_traceback_later(settings.timeout, exit=True, file=errors)
    return True


def pytest_timeout_cancel_timer() -> bool:
    faulthandler.cancel_dump_traceback_later()
    return True


def pytest_collection() -> None:
    # All that is imported and collected stays until the end: it is never worth a look.
    gc.disable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker for all tests, which keep apart by the names of topics and groups.

    It stays up: a test that breaks, stops or fills a broker makes its own cluster.
    """
    folder = tmp_path_factory.mktemp("kafka")
    with Cluster(folder, heap_mb=HEAP_MB, settings=RETENTION_RESTS) as cluster:
        yield cluster


@pytest.fixture
def make_kafka_cluster(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., Cluster]]:
    """`make_kafka_cluster(brokers=3, …)`: a started cluster of the test's own, ended with it."""
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
        # Killed at once: nobody reads this data any more, and paused brokers do not end otherwise.
        cluster.kill()
