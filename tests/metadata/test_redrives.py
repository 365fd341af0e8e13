"""The register of a re-drive: read as written, and gone when its subscription's life is over."""

import random
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.config import Config
from hermes_actors.log.base import Commit
from hermes_actors.metadata.bodies import UndecodableBody, subscription_body, topic_body
from hermes_actors.metadata.commands import delete, put
from hermes_actors.metadata.keys import life_of, parse_key, seek_key, subscription_key, topic_key
from hermes_actors.metadata.reconciler import TopicReconciler
from hermes_actors.metadata.redrives import (
    FollowedRedrives,
    LetterRange,
    Redrive,
    RedriveProgress,
    decode_redrive,
    progress_metadata,
    progress_of,
    redrive_body,
    redrive_key,
    redrive_of,
)
from hermes_actors.metadata.seek import SeekBody, seek_body
from hermes_actors.model.dead_letter import LetterFilter
from hermes_actors.model.names import SubscriptionName

NAME = SubscriptionName.parse("shop.orders$push")
KEY = redrive_key(NAME)

filters = st.builds(
    LetterFilter,
    ids=st.lists(st.text(max_size=5), max_size=3).map(tuple),
    reasons=st.lists(st.text(max_size=5), max_size=3).map(tuple),
    statuses=st.lists(st.integers(0, 999), max_size=3).map(tuple),
    message_id=st.text(max_size=5),
    since_ms=st.none() | st.integers(0, 2**40),
    until_ms=st.none() | st.integers(0, 2**40),
)
numbers = st.integers(0, 2**40)
redrives = st.builds(
    Redrive,
    number=numbers,
    incarnation=numbers,
    rate_per_s=numbers,
    requested_at_ms=numbers,
    requested_by=st.text(max_size=5),
    ranges=st.dictionaries(st.text(max_size=5), st.builds(LetterRange, numbers, numbers)),
    letters=filters,
)


@given(st.binary(max_size=30))
def test_any_other_body_is_undecodable(body):
    with pytest.raises(UndecodableBody):
        decode_redrive(body)


def a_redrive(**fields):
    given = {
        "number": 3,
        "incarnation": 0,
        "rate_per_s": 5,
        "requested_at_ms": 1_000,
        "requested_by": "me",
        "ranges": {"dc1": LetterRange(0, 9)},
    }
    return Redrive(**(given | fields))


def test_progress_counts_for_the_redrive_that_it_was_committed_for_alone():
    progress = RedriveProgress(3, 1_000, total=9, redriven=4)
    commit = Commit(5, progress_metadata(progress))
    assert progress_of(commit, a_redrive()) == progress
    beginning = RedriveProgress(4, 1_000)
    assert progress_of(commit, a_redrive(number=4)) == beginning
    assert progress_of(commit, a_redrive(requested_at_ms=2_000)) == RedriveProgress(3, 2_000)
    assert progress_of(Commit(5, "h1:0:7:0:0:"), a_redrive()) == RedriveProgress(3, 1_000)
    assert progress_of(None, a_redrive()) == RedriveProgress(3, 1_000)


@pytest.fixture
def open_reconciled(open_site, clock):
    @asynccontextmanager
    async def open_it():
        async with open_site() as site:
            site.supervisor.start_task(
                "reconciler",
                lambda stop: TopicReconciler(
                    site.metadata, {}, Config(), clock=clock, rng=random.Random(2)
                ).run(stop),
            )
            yield site

    return open_it


async def test_a_redrive_of_a_life_that_is_over_is_deleted_and_no_other(
    autojump_clock, open_reconciled, topic, subscription
):
    async with open_reconciled() as site:
        change = site.metadata.change
        await change(put(topic_key(NAME.topic), topic_body(topic("shop.orders"))))
        body = subscription_body(subscription("shop.orders", "push"), 0)
        await change(put(subscription_key(NAME), body))
        await change(put(KEY, redrive_body(a_redrive())))
        other = redrive_key(SubscriptionName.parse("shop.orders$on-its-way"))
        await change(put(other, redrive_body(a_redrive())))
        await change(put(seek_key(NAME), seek_body(SeekBody(0, 0, {}, 5))))
        await trio.sleep(120)
        catalog = site.metadata.catalog
        assert redrive_of(catalog, NAME, 0) == a_redrive()
        assert redrive_of(catalog, NAME, 1) is None
        assert catalog.subscriptions[str(NAME)].seek is not None
        await change(delete(subscription_key(NAME)))
        await trio.sleep(120)
        assert KEY not in catalog.others
        assert catalog.seek_keys() == []
        assert other in catalog.others


async def test_what_a_later_life_left_on_its_way_survives_the_sweep_of_the_one_before(
    autojump_clock, open_reconciled, topic, subscription
):
    async with open_reconciled() as site:
        change, catalog = site.metadata.change, site.metadata.catalog
        await change(put(topic_key(NAME.topic), topic_body(topic("shop.orders"))))
        body = subscription_body(subscription("shop.orders", "push"), 0)
        await change(put(subscription_key(NAME), body))
        await change(put(KEY, redrive_body(a_redrive())))
        await change(put(seek_key(NAME), seek_body(SeekBody(0, 0, {}, 5))))
        await change(delete(subscription_key(NAME)))
        # Another datacentre has made the subscription anew; here that is heard of last.
        life = site.metadata.register(subscription_key(NAME)).incarnation
        theirs = redrive_key(NAME, life)
        await change(put(theirs, redrive_body(a_redrive(incarnation=life))))
        await change(put(seek_key(NAME, life), seek_body(SeekBody(life, 0, {}, 5))))
        await trio.sleep(120)
        assert sorted(catalog.others) == [theirs]
        assert catalog.seek_keys() == [seek_key(NAME, life)]


@given(st.integers(0, 2**62), st.sampled_from(["push", "a/b", "$"]))
def test_each_life_has_a_key_of_its_own_that_names_it(incarnation, name):
    subscription = SubscriptionName(NAME.topic, name)
    for key in (seek_key(subscription, incarnation), redrive_key(subscription, incarnation)):
        assert life_of(parse_key(key)) == (subscription, incarnation)


async def test_consumers_are_woken_by_each_change_of_a_redrive(
    autojump_clock, open_site, topic, subscription
):
    async with open_site() as site, trio.open_nursery() as nursery:
        change = site.metadata.change
        await change(put(topic_key(NAME.topic), topic_body(topic("shop.orders"))))
        body = subscription_body(subscription("shop.orders", "push"), 0)
        await change(put(subscription_key(NAME), body))
        live = site.metadata.catalog.subscriptions[str(NAME)]
        board = FollowedRedrives(site.metadata)
        site.supervisor.start_task("redrives", board.run)
        seen = []

        async def follow():
            while True:
                seen.append(board.find(live))
                await board.wait_changed()

        nursery.start_soon(follow)
        await trio.testing.wait_all_tasks_blocked()
        await change(put(KEY, redrive_body(a_redrive())))
        await trio.testing.wait_all_tasks_blocked()
        await change(delete(KEY))
        await trio.testing.wait_all_tasks_blocked()
        assert seen == [None, a_redrive(), None]
        nursery.cancel_scope.cancel()
