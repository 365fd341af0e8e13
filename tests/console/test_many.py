"""Pages of thousands of subscriptions: bounded work, and other tasks run in between.

Counted are calls of functions, which are the same on every machine: ten thousand take about a
millisecond.
"""

import sys

import pytest
import trio

from hermes_actors.management.access.roles import Anonymous
from hermes_actors.status.fold import StatusFold
from hermes_actors.status.record import Flow, Published, SubscriptionStatus, TopicStatus
from tests.console.desk import Desk
from tests.management.conftest import subscription_of, topic_of
from tests.management.statuses_scene import Nodes

SUBSCRIPTIONS, TOPICS, NODES = 2_000, 200, 10
CALLS_OF_A_TURN_MAX = 40_000
CALLS_OF_A_PAGE_MAX = 800_000


@pytest.fixture
async def many(api):
    catalog, parts, somebody = api.metadata.catalog, api.administration, Anonymous()
    await parts.groups.create(somebody, {"groupName": "shop"})

    async def create(number):
        name = f"shop.t{number:03}"
        await parts.topics.create(somebody, topic_of(name))
        for each in range(SUBSCRIPTIONS // TOPICS):
            body = subscription_of(f"s{each}", name)
            await parts.subscriptions.create(somebody, name, body)

    async with trio.open_nursery() as nursery:
        for number in range(TOPICS):
            nursery.start_soon(create, number)
    fold = StatusFold()
    nodes = Nodes(fold, api.clock)
    names = sorted(catalog.subscriptions)
    for dc in ("dc1", "dc2"):
        nodes.read(dc)
        for number in range(NODES):
            nodes.tell(
                dc,
                f"n{number}",
                topics=[TopicStatus(each, rates=Published(1_000)) for each in catalog.topics],
                subscriptions=[
                    SubscriptionStatus(
                        name=each, state="FAILING", rates=Flow(codes_5xx=9_000), lag=3
                    )
                    for each in names[number::NODES]
                ],
            )
    api.administered_with(datacenters=("dc1", "dc2"), status=fold)
    return Desk(api, "")


class Turns(trio.abc.Instrument):
    """Counts the calls of each turn of a task."""

    def __init__(self):
        self.calls = self.longest = self.all = 0

    def before_task_step(self, _task):
        self.calls = 0

    def after_task_step(self, _task):
        self.longest = max(self.longest, self.calls)
        self.all += self.calls

    def profile(self, _frame, event, _arg):
        if event in ("call", "c_call"):
            self.calls += 1


@pytest.mark.slow
async def test_a_page_of_many_subscriptions_is_bounded_and_gives_way(many):
    for path in (
        "/console/subscriptions",
        "/console/subscriptions?page=20",
        "/console/subscriptions?sort=state",
        "/console/subscriptions?unhealthy=true&q=billing",
        "/console/topics?sort=lag",
        "/console/search?q=shop",
        "/console/overview",
    ):
        turns = Turns()
        trio.lowlevel.add_instrument(turns)
        sys.setprofile(turns.profile)
        try:
            answer = await many.get(path)
        finally:
            sys.setprofile(None)
            trio.lowlevel.remove_instrument(turns)
        assert answer.status_code == 200
        assert turns.longest < CALLS_OF_A_TURN_MAX, path
        assert turns.all < CALLS_OF_A_PAGE_MAX, path
