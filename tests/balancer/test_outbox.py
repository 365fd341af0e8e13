"""Subscriptions whose endpoint is gone are suspended, each for itself."""

from types import SimpleNamespace

import trio

from hermes_actors.balancer.outbox import Outbox
from hermes_actors.errors import Unavailable
from hermes_actors.metadata.bodies import Suspension
from hermes_actors.metadata.commands import Rejected
from tests.values import a_live_subscription, a_subscription

GONE = Suspension(0, reason="gone")


def live(name):
    return a_live_subscription(a_subscription(name))


class Metadata:
    """Takes changes as `answers` say, by subscription; else at once."""

    def __init__(self, *names):
        lives = [live(each) for each in names]
        self.catalog = SimpleNamespace(subscriptions={str(each.name): each for each in lives})
        self.answers = {}
        self.written = []
        self.under_way = self.under_way_high = 0

    async def change(self, change):
        name = change.key.rpartition("/")[2].rpartition("$")[2]
        self.under_way += 1
        self.under_way_high = max(self.under_way_high, self.under_way)
        answer = await self.answers.get(name, trio.lowlevel.checkpoint)()
        self.under_way -= 1
        if answer is None:
            self.written.append(name)
        return answer


async def test_one_that_cannot_be_written_holds_up_no_other(nursery, autojump_clock):
    metadata = Metadata("silent", "refused", "away", *"abc")

    async def away():
        raise Unavailable("the log is away")

    async def refused():
        return Rejected("somebody was faster")

    metadata.answers = {"silent": trio.sleep_forever, "refused": refused, "away": away}
    outbox = Outbox(metadata)
    for each in metadata.catalog.subscriptions.values():
        outbox.suspend(each, GONE)
    nursery.start_soon(outbox.run)
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(metadata.written) == ["a", "b", "c"]
    # They are tried again, and asked for once more meanwhile is asked for once.
    outbox.suspend(metadata.catalog.subscriptions["shop.orders$away"], GONE)
    del metadata.answers["refused"], metadata.answers["away"]
    await trio.sleep(1.5)
    assert sorted(metadata.written) == ["a", "away", "b", "c", "refused"]


async def test_changes_under_way_are_bounded_and_none_is_forgotten(nursery, autojump_clock):
    names = [f"s{number}" for number in range(50)]
    metadata = Metadata(*names)

    async def slow():
        await trio.sleep(1)

    metadata.answers = dict.fromkeys(names, slow)
    outbox = Outbox(metadata)
    nursery.start_soon(outbox.run)
    for each in metadata.catalog.subscriptions.values():
        outbox.suspend(each, GONE)
    await trio.sleep(10)
    assert metadata.under_way_high == 8
    assert sorted(metadata.written) == sorted(names)
