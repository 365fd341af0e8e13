"""Reconciliation finds exactly what a plain program finds over the same logs."""

import json
from collections import Counter

import pytest

from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.cli.main import app
from hermes_spark.reconcile.acknowledged import acknowledged_list
from hermes_spark.reconcile.job import reconcile
from hermes_spark.reconcile.result import Verdict
from hermes_spark.snapshot import Datacentre, EmbeddedLog
from hermes_spark.taking import take_snapshot
from tests.spark.reconcile_oracle import causes, fates, letter_ids, unsettled
from tests.spark.reconcile_worlds import TAKEN_AT_MS, made
from tests.spark.stored_scene import T0_MS, fill_embedded, native


def write_list(path, listed):
    with path.open("w") as file:
        for topic, message, status, sent_ms in listed:
            line = {"topic": topic, "messageId": message, "status": status}
            file.write(json.dumps(line | ({} if sent_ms is None else {"sentMs": sent_ms})) + "\n")
    return acknowledged_list(str(path))


def silent(_):
    pass


@pytest.mark.parametrize("seed", range(2))
def test_it_finds_what_a_plain_program_finds(spark, tmp_path, seed):
    snapshot, world = made(tmp_path / "logs", seed)
    lists = [write_list(tmp_path / "acknowledged.ndjson", world.listed)] if seed else []
    if not seed:
        world.listed = []
    result = reconcile(spark, snapshot, lists, tmp_path / "out", say=silent)

    by_topic = {each.topic: each for each in result.topics}
    expected = fates(world)
    assert {name: each.fates for name, each in by_topic.items() if each.fates} == expected
    by_cause, surplus = causes(world)
    assert {name: each.causes for name, each in by_topic.items() if each.causes} == by_cause
    assert {name: each.surplus for name, each in by_topic.items() if each.surplus} == surplus
    records = Counter(each[1] for each in world.stored)
    assert {name: each.records for name, each in by_topic.items() if each.records} == records

    late = unsettled(world)
    assert {(each.topic, each.name): each.unsettled for each in result.subscriptions} == {
        key: len(places) for key, places in late.items()
    }
    rows = spark.read.parquet(str(tmp_path / "out" / "unsettled")).collect()
    assert sorted((r.topic, r.subscription, r.dc, r.partition, r.offset) for r in rows) == sorted(
        (*key, *place) for key, places in late.items() for place in places
    )
    assert {(each.topic, each.name): each.dead_letters for each in result.subscriptions} == {
        key: len(world.letters.get(key, ())) for key in late
    }
    letters = spark.read.parquet(str(tmp_path / "out" / "dead-letters")).collect()
    assert {(row.topic, row.message_id) for row in letters} == letter_ids(world)
    lost = sum(each["lost"] for each in expected.values())
    assert (result.verdict is Verdict.LOST) == (lost > 0)
    if not lists:
        assert result.verdict is Verdict.UNKNOWN


@pytest.fixture
def one_topic(tmp_path):
    """A snapshot of one datacentre with the messages id-1 and id-2 of shop.orders."""
    fill_embedded(tmp_path / "dc1", {"shop.orders": [[native(1), native(2)]]})
    described = {"dc1": Datacentre(EmbeddedLog(str(tmp_path / "dc1")))}
    return take_snapshot(described, TAKEN_AT_MS, lambda: None)


def test_the_same_snapshot_gives_the_same_result(spark, one_topic, tmp_path):
    lists = [write_list(tmp_path / "sent.ndjson", [("shop.orders", "id-9", 201, None)])]
    for name in "ab":
        reconcile(spark, one_topic, lists, tmp_path / name, say=silent)
    one, other = ((tmp_path / name / "result.json").read_bytes() for name in "ab")
    assert one == other
    assert b'"lost": 1' in one


LISTS = {
    "a.ndjson": '{"topic":"shop.a","messageId":"id-1"}\n{"topic":"shop.a",'
    '"messageId":"gone","status":201,"sentMs":5}\n',
    "b.csv": "topic,messageId,status,sentMs\nshop.b,id-1,201,1\nshop.b,gone,201,\n",
    "c.txt": "id-1\n\n  gone \n",
}


def test_a_list_is_json_lines_csv_or_plain_ids(spark, tmp_path):
    topics = ("shop.a", "shop.b", "shop.c")
    fill_embedded(tmp_path / "dc1", {topic: [[native(1), native(2)]] for topic in topics})
    described = {"dc1": Datacentre(EmbeddedLog(str(tmp_path / "dc1")))}
    snapshot = take_snapshot(described, TAKEN_AT_MS, lambda: None)
    for name, content in LISTS.items():
        (tmp_path / name).write_text(content)
    options = [str(tmp_path / "a.ndjson"), str(tmp_path / "b.csv"), f"shop.c={tmp_path / 'c.txt'}"]
    lists = [acknowledged_list(option) for option in options]
    result = reconcile(spark, snapshot, lists, tmp_path / "out", say=silent)
    assert {each.topic: (each.fates, each.lost_ids) for each in result.topics} == dict.fromkeys(
        topics, ({"lost": 1, "stored": 1}, ["gone"])
    )


def test_a_list_can_be_a_topic_of_the_logs(spark, tmp_path):
    said = [b'{"topic":"shop.orders","messageId":"id-1","status":201}']
    records = [native(number) for number in (1, 2)]
    spoken = [type(records[0])(None, value, (), T0_MS) for value in said]
    fill_embedded(tmp_path / "dc1", {"shop.orders": [records], "shop.sent": [spoken]})
    described = {"dc1": Datacentre(EmbeddedLog(str(tmp_path / "dc1")))}
    snapshot = take_snapshot(described, TAKEN_AT_MS, lambda: None)
    lists = [acknowledged_list("topic:shop.sent")]
    result = reconcile(spark, snapshot, lists, tmp_path / "out", ["shop.orders"], say=silent)
    assert [each.topic for each in result.topics] == ["shop.orders"]
    assert result.verdict is Verdict.CLEAN
    assert result.reasons() == ["All acknowledged messages are stored: 1 message"]


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ("ids.doc", r"must end with one of \.ndjson"),
        ("ids.txt", "ids alone need their topic; write TOPIC=ids.txt"),
        ("none.ndjson.gz", "there is no file none.ndjson.gz"),
    ],
)
def test_a_list_that_cannot_be_read_is_refused(option, complaint):
    with pytest.raises(UsageWrong, match=complaint):
        acknowledged_list(option)


def test_the_command_writes_report_and_tables_and_ends_with_the_verdict(
    spark, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    fill_embedded(tmp_path / "dc1", {"shop.orders": [[native(1), native(2)]]})
    (tmp_path / "sent.txt").write_text("id-1\nid-2\n")
    command = ["spark", "reconcile", "--dc", "dc1=embedded:dc1", "-o", "out"]

    def ended(*more):
        with pytest.raises(SystemExit) as end:
            app([*command, *more])
        return end.value.code

    assert ended("--acknowledged", "shop.orders=sent.txt") == 0
    said = capsys.readouterr().out
    assert "CLEAN: All acknowledged messages are stored: 2 messages" in said
    assert "report: out/report.html" in said
    assert "Nothing is lost" in (tmp_path / "out" / "report.html").read_text()
    assert json.loads((tmp_path / "out" / "result.json").read_bytes())["verdict"] == "clean"

    (tmp_path / "sent.txt").write_text("id-1\nid-3\n")
    command = ["spark", "reconcile", "--snapshot", "out/snapshot.json", "-o", "again"]
    assert ended("--acknowledged", "shop.orders=sent.txt") == 1
    assert ended() == 3
    assert ended("--dc", "dc1=embedded:dc1") == 2
