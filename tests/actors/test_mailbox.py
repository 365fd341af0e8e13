"""The mailbox is bounded, keeps order, and loses neither messages nor wake-ups."""

import random
from collections.abc import Callable

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.actors.mailbox import (
    Inbox,
    MailboxClosed,
    MailboxFull,
    Ref,
    Reply,
    open_mailbox,
)


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


async def test_a_closed_mailbox_refuses_tell_send_and_ask() -> None:
    ref, inbox = mailbox(1)
    inbox.close()
    assert not ref.is_open
    with pytest.raises(MailboxClosed):
        ref.tell(1)
    with pytest.raises(MailboxClosed):
        await ref.send(1)
    with pytest.raises(MailboxClosed):
        await ref.ask(lambda _reply: 1, timeout_s=1)


async def test_send_waits_while_the_mailbox_is_full(autojump_clock: trio.abc.Clock) -> None:
    ref, inbox = mailbox(1)
    ref.tell(1)
    sent_at: list[float] = []

    async def sender() -> None:
        await ref.send(2)
        sent_at.append(trio.current_time())

    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender)
        await trio.sleep(5)
        assert inbox.receive_nowait(1) == [1]
    assert sent_at == [start + 5]
    assert inbox.receive_nowait(10) == [2]


async def test_a_cancelled_send_adds_nothing(autojump_clock: trio.abc.Clock) -> None:
    ref, inbox = mailbox(1)
    ref.tell(1)
    with trio.move_on_after(1) as scope:
        await ref.send(2)
    assert scope.cancelled_caught
    assert inbox.receive_nowait(10) == [1]
    await trio.testing.wait_all_tasks_blocked()
    assert inbox.receive_nowait(10) == []


async def test_a_sender_that_waits_at_close_is_told_so() -> None:
    ref, inbox = mailbox(1)
    ref.tell(1)
    refused: list[int] = []

    async def sender(number: int) -> None:
        with pytest.raises(MailboxClosed):
            await ref.send(number)
        refused.append(number)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender, 2)
        nursery.start_soon(sender, 3)
        await trio.testing.wait_all_tasks_blocked()
        inbox.close()
    assert sorted(refused) == [2, 3]
    assert [message async for message in inbox] == [1]


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
    with trio.testing.assert_checkpoints():
        await ref.send(2)


async def test_an_ask_gets_the_answer() -> None:
    ref: Ref[tuple[int, Reply[int]]]
    inbox: Inbox[tuple[int, Reply[int]]]
    ref, inbox = open_mailbox(1)

    async def doubler() -> None:
        async for number, reply in inbox:
            reply.complete(number * 2)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(doubler)
        request: Callable[[Reply[int]], tuple[int, Reply[int]]] = lambda reply: (21, reply)  # noqa: E731
        assert await ref.ask(request, timeout_s=1) == 42
        inbox.close()


async def test_an_ask_raises_what_the_actor_failed_it_with() -> None:
    ref: Ref[Reply[int]]
    inbox: Inbox[Reply[int]]
    ref, inbox = open_mailbox(1)

    async def refuser() -> None:
        async for reply in inbox:
            reply.fail(LookupError("no such topic"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(refuser)
        with pytest.raises(LookupError, match="no such topic"):
            await ref.ask(lambda reply: reply, timeout_s=1)
        inbox.close()


async def test_an_unanswered_ask_times_out_and_a_late_answer_does_no_harm(
    autojump_clock: trio.abc.Clock,
) -> None:
    ref: Ref[Reply[int]]
    inbox: Inbox[Reply[int]]
    ref, inbox = open_mailbox(1)
    start = trio.current_time()
    with pytest.raises(trio.TooSlowError):
        await ref.ask(lambda reply: reply, timeout_s=3)
    assert trio.current_time() - start == 3
    assert inbox.receive_nowait(1)[0].complete(1)


async def test_an_ask_of_a_full_mailbox_is_refused_at_once() -> None:
    ref, _inbox = mailbox(1)
    ref.tell(1)
    with pytest.raises(MailboxFull):
        await ref.ask(lambda _reply: 2, timeout_s=1)


def test_only_the_first_answer_counts_and_notifies_once() -> None:
    notified: list[object] = []
    reply: Reply[int] = Reply(notified.append)
    assert reply.complete(1)
    assert not reply.complete(2)
    assert not reply.fail(ValueError())
    assert reply.result() == 1
    assert notified == [reply]


def test_a_failed_reply_cannot_be_completed_later() -> None:
    reply: Reply[int] = Reply()
    assert reply.fail(ValueError("first"))
    assert not reply.complete(2)
    with pytest.raises(ValueError, match="first"):
        reply.result()


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


@pytest.mark.parametrize("seed", range(20))
async def test_many_writers_lose_no_message_no_order_and_no_wake_up(
    seed: int, autojump_clock: trio.abc.Clock
) -> None:
    """Writers and one reader that hesitate at random; a lost wake-up is a deadlock, found by time.

    Some writers are cancelled in mid-send: what send did not return for must not have been added.
    """
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
            way = rng.random()
            try:
                if way < 0.3:
                    ref.tell((writer, number))
                    added[writer].append(number)
                elif way < 0.5:
                    with trio.move_on_after(rng.random() / 10):
                        await ref.send((writer, number))
                        added[writer].append(number)
                else:
                    await ref.send((writer, number))
                    added[writer].append(number)
            except MailboxFull:
                continue

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
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ref.send, 7)
        await trio.testing.wait_all_tasks_blocked()
        inbox.drop_while(lambda number: number % 2 == 0)
    assert inbox.receive_nowait(10) == [5, 6, 7]
