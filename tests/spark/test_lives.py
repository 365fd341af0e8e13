"""A topic that was deleted and made again is one topic, whatever the log calls its lives."""

import json

import pytest

from hermes_actors.log.base import Commit
from hermes_actors.log.commits import CommitOwner, encode
from hermes_actors.metadata.commands import NOTHING_SEEN, Delete, LogCreated, Put
from hermes_actors.metadata.commands import encode as encode_command
from hermes_actors.metadata.keys import subscription_key
from hermes_actors.model.dead_letter import Letter, letter_record
from hermes_actors.model.names import SubscriptionName
from hermes_spark.lives import life_of, lives_in
from hermes_spark.reconcile.acknowledged import acknowledged_list
from hermes_spark.reconcile.job import reconcile
from hermes_spark.reconcile.registered import registered
from hermes_spark.replay.selection import records_of
from hermes_spark.snapshot import Datacentre, EmbeddedLog
from hermes_spark.sources import stored
from hermes_spark.taking import take_snapshot
from tests.spark.reconcile_worlds import TAKEN_AT_MS
from tests.spark.stored_scene import T0_MS, commit_embedded, fill_embedded, foreign, native

DELETED_AT_MS = T0_MS + 1_000
NEWER = f"shop.orders_.{DELETED_AT_MS}"


@pytest.mark.parametrize(
    ("log_topic", "life"),
    [
        ("shop.orders", ("shop.orders", 0)),
        ("shop.my_orders_.17", ("shop.my_orders", 17)),
        ("shop.orders_.017", ("shop.orders_.017", 0)),
        ("_schemas", ("_schemas", 0)),
    ],
)
def test_a_life_is_told_from_the_logs_name(log_topic, life):
    assert life_of(log_topic) == life


@pytest.fixture
def snapshot(tmp_path):
    """Of id-1 in the first life, id-2000 and id-2001 in the second, one of which is settled; of a
    dead letter of a life between, and of a topic that is not ours.
    """
    folder = tmp_path / "dc1"
    letter = Letter(
        "dc1", "shop.orders$a", 9, "shop.orders_.5", 0, 77, T0_MS, None, b"", (), "old", "attempts",
        "", 3, 500, T0_MS + 5,
    )  # fmt: skip
    topics = {
        "shop.orders": [[native(1)]],
        NEWER: [[native(2_000), native(2_001)]],
        "_hermes.dlq.shop": [[letter_record(letter)]],
        "_schemas": [[foreign(b"{}")]],
    }
    fill_embedded(folder, topics)
    settled = encode(1, (), CommitOwner(DELETED_AT_MS, 9, 1, 0))
    commit_embedded(folder, "shop_orders_a", NEWER, {0: Commit(1, settled)})
    commit_embedded(folder, "shop_orders_a", "shop.orders", {0: Commit(1, "")})
    described = {"dc1": Datacentre(EmbeddedLog(str(folder)))}
    return take_snapshot(described, TAKEN_AT_MS, lambda: None)


def test_both_lives_are_one_topic_whose_newest_is_to_be_settled(spark, snapshot, tmp_path):
    listed = {"id-1": T0_MS + 1, "id-2000": T0_MS + 2_000, "gone with its life": T0_MS}
    lines = [
        {"topic": "shop.orders", "messageId": each, "sentMs": sent_ms}
        for each, sent_ms in listed.items()
    ]
    path = tmp_path / "sent.ndjson"
    path.write_text("\n".join(map(json.dumps, lines)))
    lists = [acknowledged_list(str(path))]
    result = reconcile(spark, snapshot, lists, tmp_path / "out", say=lambda _: None)
    (topic,) = result.topics
    assert (topic.topic, topic.messages) == ("shop.orders", 3)
    assert topic.fates == {"expired": 1, "stored": 2, "given-up": 1}
    (late,) = result.subscriptions
    assert (late.topic, late.name, late.unsettled) == ("shop.orders", "a", 1)
    # What the letter speaks of lay in a life that is gone.
    assert (late.dead_letters, late.settled_without_store) == (1, 0)
    unsettled = spark.read.parquet(str(tmp_path / "out" / "unsettled"))
    assert [(row.topic, row.message_id) for row in unsettled.collect()] == [
        ("shop.orders", "id-2001")
    ]
    rows = stored(spark, snapshot, topics=lives_in(snapshot, ["shop.orders"]))
    (found,) = records_of(unsettled.select("topic", "message_id"), rows).collect()
    assert (found.topic, found.offset) == ("shop.orders", 1)


def test_the_present_life_of_a_subscription_is_what_the_datacentres_metadata_says(spark, tmp_path):
    names = [SubscriptionName.parse(f"shop.orders${each}") for each in "abc"]
    made, gone, unheard = map(subscription_key, names)

    def log(dc, *commands):
        return [encode_command(LogCreated(f"log-{dc}", dc), T0_MS), *commands]

    def put(key, number, at_ms):
        return encode_command(Put(f"{key}{number}", key, b"body", (), NOTHING_SEEN), at_ms)

    def delete(key, at_ms):
        return encode_command(Delete(f"{key}-", key, (), NOTHING_SEEN), at_ms)

    logs = {
        "dc1": log(
            "dc1",
            put(made, 1, T0_MS + 1),
            delete(made, T0_MS + 2),
            put(made, 2, T0_MS + 3),
            put(gone, 1, T0_MS + 4),
            delete(gone, T0_MS + 5),
        ),
        "dc2": log("dc2", put(made, 1, T0_MS + 1), put(unheard, 1, T0_MS + 6)),
    }
    for dc, records in logs.items():
        fill_embedded(tmp_path / dc, {"_hermes.metadata": [records]})
    described = {dc: Datacentre(EmbeddedLog(str(tmp_path / dc))) for dc in logs}
    snapshot = take_snapshot(described, TAKEN_AT_MS, lambda: None)
    assert registered(spark, snapshot) == {
        "shop.orders$a": T0_MS + 2,
        "shop.orders$b": None,
        "shop.orders$c": 0,
    }
