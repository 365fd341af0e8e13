"""The mailbox is bounded, keeps order, and loses neither messages nor wake-ups."""

import random

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.actors.mailbox import (
    Inbox,
    MailboxClosed,
    MailboxFull,
    Ref,
    open_mailbox,
)
from tests.seeds import seeds


def mailbox(capacity: int) -> tuple[Ref[int], Inbox[int]]:
    ref: Ref[int]
    inbox: Inbox[int]
    ref, inbox = open_mailbox(capacity)
    return ref, inbox


async def test_a_full_mailbox_refuses_tell_and_holds_what_it_held() -> None:
    ref, inbox = mailbox(2)
    ref.tell(1)
    ref.tell(2)
    with pytest.raises(MailboxFull):
        ref.tell(3)
    assert ref.statistics() == (2, 2)
    assert inbox.receive_nowait(10) == [1, 2]


def test_a_closed_mailbox_refuses_tell() -> None:
    ref, inbox = mailbox(1)
    inbox.close()
    assert not ref.is_open
    with pytest.raises(MailboxClosed):
        ref.tell(1)


async def test_iteration_ends_only_after_what_waited_at_close() -> None:
    ref, inbox = mailbox(10)
    for number in range(3):
        ref.tell(number)
    inbox.close()
    assert inbox.is_closed
    assert [message async for message in inbox] == [0, 1, 2]
    assert await inbox.wait() is False


async def test_close_wakes_a_reader_that_waits() -> None:
    _ref, inbox = mailbox(1)
    async with trio.open_nursery() as nursery:

        async def read() -> None:
            assert [message async for message in inbox] == []

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        inbox.close()


async def test_waiting_for_a_message_is_a_checkpoint_even_when_one_waits() -> None:
    ref, inbox = mailbox(1)
    ref.tell(1)
    with trio.testing.assert_checkpoints():
        assert await inbox.wait()
    assert inbox.receive_nowait(1) == [1]


@given(
    capacity=st.integers(1, 5),
    operations=st.lists(st.one_of(st.just("tell"), st.integers(0, 6)), max_size=60),
)
def test_without_waiting_it_behaves_as_a_bounded_queue(
    capacity: int, operations: list[str | int]
) -> None:
    ref, inbox = mailbox(capacity)
    model: list[int] = []
    for number, operation in enumerate(operations):
        if operation == "tell":
            if len(model) == capacity:
                with pytest.raises(MailboxFull):
                    ref.tell(number)
            else:
                ref.tell(number)
                model.append(number)
        else:
            assert isinstance(operation, int)
            assert inbox.receive_nowait(operation) == model[:operation]
            del model[:operation]
        assert ref.statistics() == (len(model), capacity)


@pytest.mark.parametrize("seed", seeds(20))
async def test_many_writers_lose_no_message_no_order_and_no_wake_up(
    seed: int, autojump_clock: trio.abc.Clock
) -> None:
    """Writers and a reader that hesitate at random; a lost wake-up is a deadlock, found by time."""
    rng = random.Random(seed)
    capacity = rng.randint(1, 4)
    ref: Ref[tuple[int, int]]
    inbox: Inbox[tuple[int, int]]
    ref, inbox = open_mailbox(capacity)
    added: dict[int, list[int]] = {writer: [] for writer in range(8)}
    read: dict[int, list[int]] = {writer: [] for writer in range(8)}

    async def hesitate() -> None:
        for _ in range(rng.randint(0, 3)):
            await trio.lowlevel.checkpoint()
        if rng.random() < 0.1:
            await trio.sleep(rng.random())

    async def write(writer: int) -> None:
        for number in range(40):
            await hesitate()
            try:
                ref.tell((writer, number))
            except MailboxFull:
                continue
            added[writer].append(number)

    async def reader() -> None:
        while await inbox.wait():
            waiting, capacity_now = ref.statistics()
            assert waiting <= capacity_now
            for writer, number in inbox.receive_nowait(rng.randint(1, 6)):
                read[writer].append(number)
            await hesitate()

    with trio.fail_after(10_000):
        async with trio.open_nursery() as everyone:
            everyone.start_soon(reader)
            async with trio.open_nursery() as writers:
                for writer in added:
                    writers.start_soon(write, writer)
            inbox.close()
    assert read == added
    assert any(added.values())


async def test_a_second_task_that_waits_at_an_inbox_is_a_programmers_error() -> None:
    inbox: Inbox[str]
    _, inbox = open_mailbox(1)
    with pytest.raises(BaseExceptionGroup) as raised:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(inbox.wait)
            nursery.start_soon(inbox.wait)
    assert raised.group_contains(AssertionError, match="one reader")


async def test_a_reader_that_was_woken_in_vain_and_cancelled_leaves_the_inbox_to_the_next() -> None:
    ref: Ref[str]
    inbox: Inbox[str]
    ref, inbox = open_mailbox(1)
    scope = trio.CancelScope()

    async def first() -> None:
        with scope:
            await inbox.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        await trio.testing.wait_all_tasks_blocked()
        ref.tell("taken by another")
        inbox.receive_nowait(1)
        scope.cancel()
        nursery.start_soon(inbox.wait)
        await trio.testing.wait_all_tasks_blocked()
        ref.tell("for the second")


async def test_the_oldest_messages_can_be_dropped_up_to_one_that_is_wanted() -> None:
    ref: Ref[int]
    inbox: Inbox[int]
    ref, inbox = open_mailbox(4)
    for number in (2, 4, 5, 6):
        ref.tell(number)
    inbox.drop_while(lambda number: number % 2 == 0)
    ref.tell(7)
    assert inbox.receive_nowait(10) == [5, 6, 7]
