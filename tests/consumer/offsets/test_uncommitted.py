"""Commits that fail are told of in a line a minute, and none that goes on failing is left out."""

import logging

import pytest
import trio

from hermes_actors.consumer.offsets.progress import Uncommitted
from hermes_actors.log.base import LogUnavailable, UnknownTopic

AWAY = LogUnavailable("Kafka of dc1: no broker answers")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "not committed" in each.getMessage()]


async def test_an_outage_is_a_line_a_minute_for_a_consumer(world, caplog, autojump_clock):
    async with world.consuming():
        world.log.faults.commits_failing = True
        await world.publish(b"1")
        await trio.sleep(150)
        assert len(lines(caplog)) == 3
        assert world.count("commit_failures") > 100
        world.log.faults.heal()
        await trio.sleep(5)
        assert await world.committed() is not None


def test_thousands_that_fail_together_are_one_line_a_minute(caplog) -> None:
    uncommitted = Uncommitted()
    for second in range(0, 120, 10):
        for number in range(2_000):
            uncommitted.failed(f"shop.orders$s{number:04}", AWAY, second + number / 2_000)
    first, second_line = lines(caplog)
    assert first == f"shop.orders$s0000: not committed: {AWAY!r}"
    assert second_line.startswith("not committed in the last minute: 2000 subscriptions: shop.")
    assert second_line.endswith("and 1997 more")
    assert len(second_line) < 500
    assert {each.levelno for each in caplog.records} == {logging.WARNING}


def test_what_fails_for_a_reason_of_its_own_is_named_when_the_others_are_well(caplog) -> None:
    uncommitted = Uncommitted()
    own = LogUnavailable("another consumer is a member of that group")
    for second in range(200):
        if second < 30:
            for number in range(500):
                uncommitted.failed(f"shop.orders$s{number:03}", AWAY, second)
        uncommitted.failed("shop.orders$own", own, second + 0.5)
    last = lines(caplog)[-1]
    assert last == f"shop.orders$own: not committed: {own!r}"


def test_a_topic_that_is_gone_is_told_beside_a_log_that_is_away(caplog) -> None:
    uncommitted = Uncommitted()
    uncommitted.failed("shop.orders$push", AWAY, 0.0)
    uncommitted.failed("shop.carts$push", UnknownTopic("shop.carts"), 1.0)
    assert lines(caplog)[1].startswith("shop.carts$push: not committed: UnknownTopic")


def test_what_failed_long_ago_is_not_counted(caplog) -> None:
    uncommitted = Uncommitted()
    for number in range(10):
        uncommitted.failed(f"shop.orders$s{number}", AWAY, number)
    uncommitted.failed("shop.orders$late", AWAY, 3_600.0)
    assert lines(caplog)[1:] == [f"shop.orders$late: not committed: {AWAY!r}"]
