"""The supervisor restarts what fails, stops what is asked to stop, and escalates the broken."""

import random
from collections.abc import Awaitable, Callable

import pytest
import trio

from hermes_actors.actors.mailbox import Inbox, MailboxClosed
from hermes_actors.actors.restart import INFRASTRUCTURE, TENANT, RestartKind, RestartPolicy
from hermes_actors.actors.supervisor import (
    ActorCancelled,
    Crash,
    RestartIntensityExceeded,
    open_supervisor,
    run_until,
)

ONCE = RestartPolicy(kind=RestartKind.TEMPORARY)


class Collector:
    """Adds up what it reads; the text "fail" makes it fail. `lives` records each start."""

    def __init__(self, lives: list[list[str]]) -> None:
        self._seen: list[str] = []
        lives.append(self._seen)

    async def run(self, inbox: Inbox[str]) -> None:
        async for message in inbox:
            if message == "fail":
                raise ValueError("told to")
            self._seen.append(message)


class Body:
    """An actor made of one function."""

    def __init__(self, body: Callable[[Inbox[str]], Awaitable[None]]) -> None:
        self._body = body

    async def run(self, inbox: Inbox[str]) -> None:
        await self._body(inbox)


async def fail(_inbox: Inbox[str]) -> None:
    raise ValueError("broken")


async def test_a_failed_actor_comes_back_with_new_state_and_its_old_mailbox(
    autojump_clock: trio.abc.Clock,
) -> None:
    lives: list[list[str]] = []
    crashes: list[Crash] = []
    async with open_supervisor(random.Random(1), crashes.append) as supervisor:
        ref = supervisor.start("collector", lambda: Collector(lives))
        for message in ("a", "fail", "b"):
            ref.tell(message)
        await trio.sleep(1)
        assert lives == [["a"], ["b"]]
        assert supervisor.statistics() == {"collector": (True, 1, 0)}
        ref.tell("c")
        await trio.testing.wait_all_tasks_blocked()
        assert lives == [["a"], ["b", "c"]]
    assert [(crash.name, repr(crash.error)) for crash in crashes] == [
        ("collector", "ValueError('told to')")
    ]
    assert crashes[0].delay_s is not None


async def test_a_neighbour_does_not_notice_a_failure(autojump_clock: trio.abc.Clock) -> None:
    broken: list[list[str]] = []
    sound: list[list[str]] = []
    async with open_supervisor(random.Random(1)) as supervisor:
        supervisor.start("broken", lambda: Collector(broken), restart=TENANT).tell("fail")
        ref = supervisor.start("sound", lambda: Collector(sound))
        ref.tell("a")
        await trio.sleep(10)
        ref.tell("b")
        await trio.testing.wait_all_tasks_blocked()
    assert sound == [["a", "b"]]
    assert len(broken) == 2


async def test_a_tenant_backs_off_to_the_bound_and_never_gives_up(
    autojump_clock: trio.abc.Clock,
) -> None:
    crashes: list[Crash] = []
    async with open_supervisor(random.Random(1), crashes.append) as supervisor:
        supervisor.start("tenant", lambda: Body(fail), restart=TENANT)
        await trio.sleep(24 * 3_600)
    delays = [crash.delay_s for crash in crashes]
    assert len(delays) > 24 * 3_600 / 300
    assert all(delay is not None and delay <= 300 for delay in delays)
    assert all(delay is not None and delay >= 150 for delay in delays[12:])


async def test_exceeded_intensity_leaves_as_itself_with_the_last_error_as_cause(
    autojump_clock: trio.abc.Clock,
) -> None:
    with pytest.raises(RestartIntensityExceeded, match="registry") as raised:
        async with open_supervisor(random.Random(1)) as supervisor:
            supervisor.start("registry", lambda: Body(fail), restart=INFRASTRUCTURE)
            await trio.sleep_forever()
    assert isinstance(raised.value.__cause__, ValueError)


async def test_exceeded_intensity_cancels_the_siblings(autojump_clock: trio.abc.Clock) -> None:
    ended: list[str] = []

    async def wait(_inbox: Inbox[str]) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("sibling")

    with pytest.raises(RestartIntensityExceeded):
        async with open_supervisor(random.Random(1)) as supervisor:
            supervisor.start("sibling", lambda: Body(wait))
            supervisor.start("broken", lambda: Body(fail))
            await trio.sleep_forever()
    assert ended == ["sibling"]


async def test_what_the_block_raises_leaves_as_itself(autojump_clock: trio.abc.Clock) -> None:
    with pytest.raises(LookupError, match="from the block"):
        async with open_supervisor(random.Random(1)) as supervisor:
            supervisor.start("collector", lambda: Collector([]))
            raise LookupError("from the block")


async def test_a_graceful_stop_lets_the_actor_finish_what_waits(
    autojump_clock: trio.abc.Clock,
) -> None:
    lives: list[list[str]] = []
    crashes: list[Crash] = []
    async with open_supervisor(random.Random(1), crashes.append) as supervisor:
        ref = supervisor.start("collector", lambda: Collector(lives))
        for message in ("a", "b"):
            ref.tell(message)
        await supervisor.stop("collector")
        assert lives == [["a", "b"]]
        assert supervisor.statistics() == {}
        with pytest.raises(MailboxClosed):
            ref.tell("c")
    assert crashes == []


async def test_a_stop_that_runs_out_of_grace_cancels(autojump_clock: trio.abc.Clock) -> None:
    ended_at: list[float] = []

    async def stubborn(_inbox: Inbox[str]) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended_at.append(trio.current_time())

    crashes: list[Crash] = []
    async with open_supervisor(random.Random(1), crashes.append) as supervisor:
        supervisor.start("stubborn", lambda: Body(stubborn))
        await trio.testing.wait_all_tasks_blocked()
        start = trio.current_time()
        await supervisor.stop("stubborn", grace_s=7)
        assert ended_at == [start + 7]
        assert not supervisor.is_running("stubborn")
    assert [type(crash.error) for crash in crashes] == [ActorCancelled]
    assert crashes[0].delay_s is None


async def test_a_stop_during_back_off_is_immediate(autojump_clock: trio.abc.Clock) -> None:
    async with open_supervisor(random.Random(1)) as supervisor:
        policy = RestartPolicy(restarts_max=None, backoff_first_s=300, backoff_max_s=300)
        supervisor.start("tenant", lambda: Body(fail), restart=policy)
        await trio.sleep(1)
        assert not supervisor.is_running("tenant")
        assert "tenant" in supervisor.statistics()
        start = trio.current_time()
        await supervisor.stop("tenant")
        assert trio.current_time() == start
        assert supervisor.statistics() == {}


async def test_a_stop_right_after_the_start_ends(autojump_clock: trio.abc.Clock) -> None:
    lives: list[list[str]] = []
    async with open_supervisor(random.Random(1)) as supervisor:
        supervisor.start("collector", lambda: Collector(lives)).tell("a")
        start = trio.current_time()
        await supervisor.stop("collector")
        assert trio.current_time() == start
    assert lives == [["a"]]


async def test_stopping_what_is_not_there_returns_at_once(autojump_clock: trio.abc.Clock) -> None:
    async with open_supervisor(random.Random(1)) as supervisor:
        await supervisor.stop("nobody")
        assert not supervisor.is_running("nobody")


async def test_two_who_stop_the_same_actor_both_return(autojump_clock: trio.abc.Clock) -> None:
    async with open_supervisor(random.Random(1)) as supervisor:
        supervisor.start("collector", lambda: Collector([]))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor.stop, "collector")
            nursery.start_soon(supervisor.stop, "collector")
        assert supervisor.statistics() == {}


async def test_a_name_can_be_used_again_after_a_stop(autojump_clock: trio.abc.Clock) -> None:
    lives: list[list[str]] = []
    async with open_supervisor(random.Random(1)) as supervisor:
        old = supervisor.start("collector", lambda: Collector(lives))
        await supervisor.stop("collector")
        new = supervisor.start("collector", lambda: Collector(lives))
        new.tell("a")
        await trio.testing.wait_all_tasks_blocked()
        assert lives == [[], ["a"]]
        assert not old.is_open


async def test_a_name_is_taken_while_its_actor_lives(autojump_clock: trio.abc.Clock) -> None:
    async with open_supervisor(random.Random(1)) as supervisor:
        supervisor.start("collector", lambda: Collector([]))
        with pytest.raises(AssertionError, match="collector runs already"):
            supervisor.start("collector", lambda: Collector([]))


async def test_an_injected_crash_restarts_the_actor_and_keeps_the_mailbox(
    autojump_clock: trio.abc.Clock,
) -> None:
    lives: list[list[str]] = []
    crashes: list[Crash] = []
    async with open_supervisor(random.Random(1), crashes.append) as supervisor:
        ref = supervisor.start("collector", lambda: Collector(lives))
        ref.tell("a")
        await trio.testing.wait_all_tasks_blocked()
        supervisor.crash("collector")
        ref.tell("b")
        await trio.sleep(1)
        assert lives == [["a"], ["b"]]
    assert [type(crash.error) for crash in crashes] == [ActorCancelled]


async def test_an_injected_crash_counts_even_when_the_actor_ends_before_it_notices(
    autojump_clock: trio.abc.Clock,
) -> None:
    lives: list[int] = []
    async with open_supervisor(random.Random(1)) as supervisor:

        async def ends_once(inbox: Inbox[str]) -> None:
            lives.append(len(lives))
            if len(lives) == 1:
                supervisor.crash("short")
                return
            await inbox.wait()

        supervisor.start("short", lambda: Body(ends_once))
        await trio.sleep(1)
        assert lives == [0, 1]


async def test_crashing_what_backs_off_or_is_not_there_does_nothing(
    autojump_clock: trio.abc.Clock,
) -> None:
    async with open_supervisor(random.Random(1)) as supervisor:
        supervisor.crash("nobody")
        policy = RestartPolicy(restarts_max=None, backoff_first_s=100, backoff_max_s=100)
        supervisor.start("tenant", lambda: Body(fail), restart=policy)
        await trio.sleep(1)
        supervisor.crash("tenant")
        await trio.testing.wait_all_tasks_blocked()
        assert supervisor.statistics()["tenant"][1] == 1


async def test_a_transient_actor_that_ends_is_gone_and_its_name_free(
    autojump_clock: trio.abc.Clock,
) -> None:
    async def end(_inbox: Inbox[str]) -> None:
        return

    async with open_supervisor(random.Random(1)) as supervisor:
        ref = supervisor.start("short", lambda: Body(end))
        await trio.testing.wait_all_tasks_blocked()
        assert not ref.is_open
        supervisor.start("short", lambda: Collector([]))


async def test_a_temporary_actor_that_fails_is_reported_and_not_restarted(
    autojump_clock: trio.abc.Clock,
) -> None:
    crashes: list[Crash] = []
    async with open_supervisor(random.Random(1), crashes.append) as supervisor:
        supervisor.start("once", lambda: Body(fail), restart=ONCE)
        await trio.sleep(100)
        assert supervisor.statistics() == {}
    assert [crash.delay_s for crash in crashes] == [None]


async def test_a_factory_that_fails_counts_as_a_failure_of_the_actor(
    autojump_clock: trio.abc.Clock,
) -> None:
    attempts: list[int] = []

    def make() -> Collector:
        attempts.append(1)
        raise OSError("no disk")

    with pytest.raises(RestartIntensityExceeded, match="no disk"):
        async with open_supervisor(random.Random(1)) as supervisor:
            supervisor.start("actor", make)
            await trio.sleep_forever()
    assert len(attempts) == 6


async def test_a_group_of_errors_from_an_actors_own_nursery_restarts_it(
    autojump_clock: trio.abc.Clock,
) -> None:
    lives: list[int] = []

    async def nested(inbox: Inbox[str]) -> None:
        lives.append(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            if len(lives) == 1:
                nursery.start_soon(fail, inbox)

    crashes: list[Crash] = []
    async with open_supervisor(random.Random(1), crashes.append) as supervisor:
        supervisor.start("nested", lambda: Body(nested))
        await trio.sleep(1)
        assert supervisor.is_running("nested")
    assert len(lives) == 2
    assert [type(crash.error) for crash in crashes] == [ExceptionGroup]


@pytest.mark.parametrize("nested", [False, True])
async def test_a_failure_while_the_block_ends_is_reported_and_does_not_leave_it(
    nested: bool, autojump_clock: trio.abc.Clock
) -> None:
    async def fails_in_putting_away() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise OSError("disk full")

    async def body(_inbox: Inbox[str]) -> None:
        if not nested:
            await fails_in_putting_away()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails_in_putting_away)
            await trio.sleep_forever()

    crashes: list[Crash] = []
    async with open_supervisor(random.Random(1), crashes.append) as supervisor:
        supervisor.start("untidy", lambda: Body(body))
        await trio.testing.wait_all_tasks_blocked()
    assert [(crash.name, crash.delay_s) for crash in crashes] == [("untidy", None)]


async def test_a_task_is_asked_to_stop_and_puts_things_away(
    autojump_clock: trio.abc.Clock,
) -> None:
    told: list[str] = []

    async def work(stop: trio.Event) -> None:
        told.append("began")
        await stop.wait()
        await trio.sleep(3)
        told.append("put away")

    async with open_supervisor(random.Random(1)) as supervisor:
        supervisor.start_task("work", work)
        await trio.sleep(1)
        assert supervisor.statistics() == {"work": (True, 0, 0)}
        await supervisor.stop("work", grace_s=5)
        assert told == ["began", "put away"]
        assert not supervisor.has("work")


async def test_a_task_that_fails_is_started_again_until_it_is_stopped(
    autojump_clock: trio.abc.Clock,
) -> None:
    starts: list[float] = []

    async def work(stop: trio.Event) -> None:
        assert not stop.is_set()
        starts.append(trio.current_time())
        await trio.sleep(1)
        raise ValueError("broken")

    async with open_supervisor(random.Random(1)) as supervisor:
        supervisor.start_task("work", work, restart=TENANT)
        await trio.sleep(60)
        assert len(starts) > 2
        began = len(starts)
        await supervisor.stop("work")
        await trio.sleep(600)
        assert len(starts) <= began + 1


async def test_what_runs_until_an_event_is_cancelled_by_it(autojump_clock: trio.abc.Clock) -> None:
    stop, ended = trio.Event(), []

    async def first() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("first")

    async def second() -> None:
        ended.append("second")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_until, stop, first, second)
        await trio.sleep(1)
        assert ended == ["second"]
        stop.set()
    assert ended == ["second", "first"]
