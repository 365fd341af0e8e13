"""A message goes to another datacentre when its own is slow, silent or gone; it is told of once."""

import pytest
import trio

from hermes_actors.log.base import RefusedRecord, Stored, UnavailableRecord, UnknownRecord


async def open_breaker(world) -> None:
    """By silence, which the caller has made."""
    world.begin(30)
    await world.send(30, 1)
    assert world.fallback.local.breaker.is_open


async def test_what_the_own_log_acknowledges_in_time_stays_there(world, autojump_clock) -> None:
    await world.warm()
    batch = await world.send(3)
    assert [message.dc for message in batch] == ["dc1"] * 3
    assert world.stored["dc2"] == []
    assert {via for *_, via in world.stored["dc1"]} == {"local"}


async def test_an_error_goes_to_the_remote_at_once(world, autojump_clock) -> None:
    world.log.faults.cut()
    (message,) = await world.send()
    assert message.is_stored
    assert message.dc == "dc2"
    assert message.took_s < 0.001
    assert world.stored["dc2"][0][3] == "fallback"
    assert world.counted("fallback_messages_total", cause="error", dc="dc2") == 1


async def test_silence_is_hedged_after_the_delay_and_no_later(world, autojump_clock) -> None:
    await world.warm()
    world.log.faults.silent = True
    (message,) = await world.send()
    assert message.dc == "dc2"
    assert message.took_s == pytest.approx(0.020, abs=0.001)
    assert world.stored["dc2"][0][3] == "hedge"
    assert world.counted("fallback_messages_total", cause="hedge") == 1


async def test_both_acknowledge_and_the_second_is_a_counted_duplicate(
    world, autojump_clock
) -> None:
    await world.warm()
    world.log.faults.delay_s = (0.1, 0.1)
    (message,) = await world.send()
    assert message.dc == "dc2"
    assert world.counted("topic_duplicated_message_total") == 0
    await trio.sleep(0.2)
    assert world.where(message.number) == ["dc1", "dc2"]
    assert (
        world.counted("topic_duplicated_message_total", group="shop", topic="orders", cause="hedge")
        == 1
    )


async def test_a_batch_larger_than_the_budget_is_hedged_in_part_and_the_rest_is_rescued(
    open_world, autojump_clock
) -> None:
    async with open_world(hedge_burst_max=4, partitions={"dc1": 1}) as world:
        await world.warm()
        world.log.faults.delay_s = (0.6, 0.6)
        batch = await world.send(5)
        assert all(message.is_stored for message in batch)
        hedged = [message for message in batch if message.took_s < 0.1]
        assert len(hedged) == 4
        assert batch[4].took_s == pytest.approx(0.35, abs=0.01)
        assert world.counted("fallback_messages_total", cause="rescue") == 1
        assert world.counted("fallback_budget_refused_total") == 1


async def test_a_message_never_fails_only_because_the_budget_is_empty(
    open_world, autojump_clock
) -> None:
    async with open_world(hedge_burst_max=1, hedge_budget_percent=1) as world:
        await world.warm()
        world.log.faults.silent = True
        batches = []
        for partition in range(4):
            batches += world.begin(1, partition)
            await trio.sleep(0.3)
        await trio.sleep(1)
        assert all(message.is_stored for message in batches)
        assert all(message.took_s < 0.5 for message in batches)


async def test_silence_opens_the_breaker_and_what_follows_goes_to_the_remote_directly(
    world, autojump_clock
) -> None:
    await world.warm()
    world.log.faults.silent = True
    first = [*world.begin(30, 0), *world.begin(30, 1)]
    await trio.sleep(0.023)
    assert all(message.is_stored for message in first)
    assert {message.dc for message in first} == {"dc2"}
    assert world.counted("fallback_breaker_is_open", dc="dc1") == 1
    assert world.counted("fallback_breaker_opened_total", cause="silence") == 1
    assert world.counted("fallback_messages_total", cause="breaker") == 60
    for _ in range(5):
        batch = await world.send(10)
        assert all(message.took_s < 0.001 for message in batch)
    assert len(world.stored["dc1"]) == 200, "the warm ones"


async def test_a_good_probe_closes_the_breaker_and_makes_no_duplicate(
    world, autojump_clock
) -> None:
    await world.warm()
    world.log.faults.silent = True
    await open_breaker(world)
    world.log.faults.heal()
    await trio.sleep(0.3)
    duplicates = world.counted("topic_duplicated_message_total")
    batch = await world.send(3)
    assert [message.dc for message in batch] == ["dc1"] * 3
    assert not world.fallback.local.breaker.is_open
    batch = await world.send(3)
    assert {message.dc for message in batch} == {"dc1"}
    assert world.counted("topic_duplicated_message_total") == duplicates


async def test_a_probe_into_silence_costs_one_batch_one_delay(world, autojump_clock) -> None:
    await world.warm()
    world.log.faults.silent = True
    await open_breaker(world)
    slow = 0
    for _ in range(200):
        batch = await world.send(2)
        assert all(message.is_stored for message in batch)
        slow += batch[0].took_s > 0.001
        assert all(message.took_s < 0.022 for message in batch)
        await trio.sleep(0.05)
    # Ten seconds; the first second has up to four.
    assert 8 <= slow <= 16
    assert world.counted("fallback_messages_total", cause="probe") == 2 * slow


async def test_an_unknown_that_no_remote_mended_stays_unknown(world, autojump_clock) -> None:
    world.log.faults.acknowledgement_lost_rate = 1.0
    world.logs["dc2"].faults.cut()
    (message,) = await world.send()
    assert type(message.outcome) is UnknownRecord
    assert "dc2" in message.outcome.reason


async def test_a_lost_acknowledgement_is_stored_elsewhere_and_counted_as_unknown_copy(
    world, autojump_clock
) -> None:
    world.log.faults.acknowledgement_lost_rate = 1.0
    (message,) = await world.send()
    assert message.dc == "dc2"
    assert world.where(message.number) == ["dc1", "dc2"]
    assert world.counted("fallback_unknown_copies_total", dc="dc1") == 1


async def test_a_record_that_is_too_large_is_not_tried_elsewhere(world, autojump_clock) -> None:
    (message,) = batch = world.make(key=bytes(2_000))
    await world.hedge.append(batch, 0)
    assert type(message.outcome) is RefusedRecord
    assert world.stored["dc2"] == []


async def test_a_topic_that_the_own_log_has_not_got_yet_is_published_elsewhere(
    world, autojump_clock
) -> None:
    await world.log.topics.delete("shop.orders")
    (message,) = await world.send()
    assert message.dc == "dc2"


async def test_the_next_remote_is_asked_when_the_first_one_fails(
    open_world, autojump_clock
) -> None:
    async with open_world(dcs=3) as world:
        world.log.faults.cut()
        world.logs["dc2"].faults.cut()
        (message,) = await world.send()
        assert message.dc == "dc3"
        assert message.took_s < 0.001


async def test_the_next_remote_is_asked_when_the_first_one_is_silent_too(
    open_world, autojump_clock
) -> None:
    async with open_world(dcs=3) as world:
        await world.warm()
        world.log.faults.silent = True
        world.logs["dc2"].faults.silent = True
        (message,) = await world.send()
        assert message.dc == "dc3"
        assert message.took_s < 0.4


async def test_remotes_are_asked_in_the_order_configured(open_world, autojump_clock) -> None:
    async with open_world(dcs=3, remotes=["dc3", "dc2"]) as world:
        world.log.faults.cut()
        (message,) = await world.send()
        assert message.dc == "dc3"


@pytest.mark.parametrize("why", ["ready", "trouble"])
async def test_a_remote_that_is_not_ready_or_in_trouble_is_passed_over(
    open_world, why, autojump_clock
) -> None:
    async with open_world(dcs=3) as world:
        if why == "ready":
            world.ready["dc2"] = False
        else:
            world.trouble["dc2"] = "not connected"
        world.log.faults.cut()
        (message,) = await world.send()
        assert message.dc == "dc3"


async def test_without_a_usable_remote_it_is_a_plain_send(world, autojump_clock) -> None:
    world.ready["dc2"] = False
    world.log.faults.silent = True
    batch = world.begin()
    await trio.sleep(4)
    assert batch[0].told == [], "its timer has answered long ago"
    world.log.faults.heal()
    await trio.sleep(0.01)
    assert [type(outcome) for outcome in batch[0].told] == [Stored]
    world.log.faults.cut()
    (message,) = await world.send()
    assert message.outcome == UnavailableRecord("the log of dc1 has no leader")


async def test_off_sends_nothing_because_of_time_but_still_after_an_error(
    open_world, autojump_clock
) -> None:
    async with open_world(hedge_mode="off") as world:
        world.log.faults.silent = True
        batch = world.begin(20)
        await trio.sleep(2)
        assert batch[0].told == []
        assert world.stored["dc2"] == []
        world.log.faults.heal()
        world.log.faults.cut()
        (message,) = await world.send()
        assert message.dc == "dc2"


async def open_breaker_by_errors(world) -> None:
    world.log.faults.cut()
    for _ in range(5):
        (message,) = await world.send()
        assert message.dc == "dc2"
        assert message.took_s < 0.01
    assert world.fallback.local.breaker.is_open


async def test_off_sends_all_to_the_remote_at_once_while_the_breaker_is_open(
    open_world, autojump_clock
) -> None:
    async with open_world(hedge_mode="off") as world:
        await open_breaker_by_errors(world)
        for _ in range(20):
            batch = await world.send(5)
            assert [message.dc for message in batch] == ["dc2"] * 5
            assert max(message.took_s for message in batch) < 0.01
            await trio.sleep(0.05)
        world.log.faults.heal()
        await trio.sleep(3)
        await world.send()
        assert not world.fallback.local.breaker.is_open
        (message,) = await world.send()
        assert message.dc == "dc1"


async def test_fixed_waits_for_the_whole_delay_however_fast_the_log_is(
    open_world, autojump_clock
) -> None:
    async with open_world(hedge_mode="fixed") as world:
        await world.warm()
        world.log.faults.silent = True
        (message,) = await world.send()
        assert message.took_s == pytest.approx(0.250, abs=0.001)


async def test_keys_go_where_the_remotes_own_number_of_partitions_puts_them(
    open_world, autojump_clock
) -> None:
    async with open_world(partitions={"dc1": 3, "dc2": 7}) as world:
        world.log.faults.cut()
        for number in range(20):
            await world.send(key=b"key-%d" % number)
        from hermes_actors.model.partitioner import partition_of

        placed = {key: partition for _, key, partition, _ in world.stored["dc2"]}
        assert placed == {key: partition_of(key, 7) for key in placed}
        assert len(placed) == 20


async def test_an_append_that_raises_is_raised_in_its_producer_and_ends_nothing_else(
    world, autojump_clock
) -> None:
    def broken(_topic, _record) -> None:
        raise RuntimeError("a checker failed")

    world.log.on_append.append(broken)
    with pytest.raises(RuntimeError, match="a checker failed"):
        await world.send()
    world.log.on_append.remove(broken)
    (message,) = await world.send()
    assert message.dc == "dc1"


async def test_what_was_answered_otherwise_and_is_stored_twice_is_a_counted_duplicate(
    world, autojump_clock
) -> None:
    world.log.faults.silent = True
    world.logs["dc2"].faults.silent = True
    (message,) = await world.send()
    assert type(message.outcome) is UnknownRecord
    world.log.faults.heal()
    world.logs["dc2"].faults.heal()
    await trio.sleep(0.1)
    assert world.where(message.number) == ["dc1", "dc2"]
    assert world.counted("topic_duplicated_message_total") == 1


@pytest.mark.parametrize("is_lost", [False, True])
async def test_what_is_kept_at_the_end_is_told_of_when_its_appends_have_ended(
    world, autojump_clock, is_lost: bool
) -> None:
    await world.warm()
    world.log.faults.delay_s = world.logs["dc2"].faults.delay_s = (2.0, 2.0)
    if is_lost:
        for log in world.logs.values():
            log.faults.acknowledgement_lost_rate = 1.0
    world.keeps = True
    (message,) = world.begin()
    await trio.sleep(0.6)
    assert message.is_done
    assert message.told == []
    await trio.sleep(3)
    assert [type(each) for each in message.told] == [UnknownRecord if is_lost else Stored]
