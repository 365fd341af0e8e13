"""Latencies and the price of hedging are what a plain program finds over the same logs."""

import json
import math
import random
from collections import defaultdict

import pytest

from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.cli.main import app
from hermes_actors.log.base import Commit
from hermes_actors.log.embedded.schema import FILE_NAME
from hermes_actors.model.dead_letter import (
    Letter,
    Mark,
    MarkKind,
    letter_record,
    mark_record,
)
from hermes_actors.model.message import Message, to_record
from hermes_spark.latency.job import latency
from hermes_spark.latency.journals import Journal, journal_of
from hermes_spark.latency.result import Hedging, not_known
from hermes_spark.snapshot import Datacentre, EmbeddedLog
from hermes_spark.taking import take_snapshot
from tests.spark.archive_oracle import logged_in_file
from tests.spark.stored_scene import T0_MS, commit_embedded, fill_embedded, foreign

HOUR_MS = 3_600_000
TOPIC = "shop.orders"
DCS = ("dc1", "dc2")


def stored_at(number):
    return T0_MS + number * 20_000


def record(number, dc="dc1", via="local"):
    message = Message(f"id-{number}", b"{}", stored_at(number), None, dc=dc, via=via)
    return to_record(message)


def letter(number, at_ms, dc="dc1"):
    return letter_record(
        Letter(
            *(dc, f"{TOPIC}$billing", 1, TOPIC, 0, number, stored_at(number), None, b"{}", ()),
            *(f"id-{number}", "expired", "", 3, 500, at_ms),
        )
    )


LOGS = {
    "dc1": {
        TOPIC: [
            [record(n) for n in range(400)],
            # Hedges of dc2's: some beside their own copy, some alone.
            [record(n, "dc2", "hedge") for n in range(500, 530)],
            [foreign(b"nobody's")],
        ],
        "_hermes.dlq.shop": [
            [
                letter(3, stored_at(3) + 70_000),
                letter(3, stored_at(3) + 90_000),
                mark_record(f"{TOPIC}$billing", Mark(MarkKind.EXPIRED, ("dc1:1:0:3",), T0_MS)),
                letter(4, stored_at(4) + 50_000),
                foreign(b"no letter"),
            ]
        ],
    },
    "dc2": {
        TOPIC: [[record(n, "dc2") for n in range(510, 600)]],
        "_hermes.dlq.shop": [[letter(515, stored_at(515) + 60_000, "dc2")]],
    },
}


def journal_lines():
    """Attempts at most messages, some of them refused first, some repeated."""
    chance = random.Random(5)
    for number in (*range(390), *range(500, 600), 9_000):
        at_ms = stored_at(number) + chance.randint(-2, 500)
        for status in chance.choice([[200], [200], [500, 200], [200, 204], [503]]):
            yield {"receivedMs": at_ms, "messageId": f"id-{number}", "status": status, "body": "{}"}
            at_ms += chance.randint(1, 5_000)


@pytest.fixture
def scene(tmp_path):
    """The contents of the logs and the journal, and where they are."""
    for dc, topics in LOGS.items():
        fill_embedded(tmp_path / dc, topics)
    commit_embedded(tmp_path / "dc1", "shop_orders_other", TOPIC, {0: Commit(7, "")})
    lines = list(journal_lines())
    journal = tmp_path / "taken.ndjson"
    torn = '{"receivedMs": 17, "messageId": "id-1", "sta'
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines) + torn)
    rows = [row for dc in DCS for row in logged_in_file(dc, tmp_path / dc / FILE_NAME)]
    return rows, lines, journal


def snapshot(spark, tmp_path):
    described = {dc: Datacentre(EmbeddedLog(str(tmp_path / dc))) for dc in DCS}
    return take_snapshot(described, T0_MS, lambda: spark)


def percentile(values, percent):
    return sorted(values)[math.ceil(percent / 100 * len(values)) - 1] if values else None


def expected_latencies(rows, lines):
    """By (topic, subscription, stage, dc, hour): what the tables are to say."""
    places, published = defaultdict(set), {}
    for dc, topic, partition, offset, timestamp_ms, _, _, headers in rows:
        if topic == TOPIC:
            own_id = dict(headers).get("id", f"{dc}:{topic}:{partition}:{offset}".encode()).decode()
            places[own_id].add(dc)
            published[own_id] = timestamp_ms
    attempted, delivered = {}, {}
    for line in lines:
        attempted.setdefault(line["messageId"], line["receivedMs"])
        if line["status"] < 300:
            delivered.setdefault(line["messageId"], line["receivedMs"])
    spans = []
    for name, stored_ms in published.items():
        dc = min(places[name]) if len(places[name]) == 1 else "several"
        for stage, times in (("first attempt", attempted), ("delivered", delivered)):
            span = times[name] - stored_ms if name in times else None
            spans.append((stage, dc, stored_ms, span))
    for dc, number, after_ms in (("dc1", 3, 70_000), ("dc1", 4, 50_000), ("dc2", 515, 60_000)):
        spans.append(("given up", dc, stored_at(number), after_ms))
    groups = defaultdict(list)
    for stage, dc, stored_ms, span in spans:
        hour = stored_ms // HOUR_MS * HOUR_MS
        for key in ((None, None), (dc, None), (dc, hour)):
            groups[TOPIC, "billing", stage, *key].append(span)
    found = {}
    for key, values in groups.items():
        known = [each for each in values if each is not None]
        found[key] = (
            *(len(values), len(known), sum(each < 0 for each in known)),
            *(percentile(known, each) for each in (50, 90, 95, 99)),
            max(known, default=None),
        )
    return found


def test_the_tables_are_what_a_plain_program_finds(spark, scene, tmp_path):
    rows, lines, journal = scene
    output = tmp_path / "out"
    journals = [Journal(TOPIC, "billing", str(journal))]
    result = latency(spark, snapshot(spark, tmp_path), journals, output, say=lambda _: None)

    measures = ["messages", "known", "below_zero", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms"]
    expected = expected_latencies(rows, lines)
    table = spark.read.parquet(str(output / "latencies")).collect()
    keys = ("topic", "subscription", "stage", "dc", "hour_ms")
    found = {
        tuple(row[key] for key in keys): tuple(row[each] for each in measures) for row in table
    }
    assert found == expected
    assert len(table) == len(found)
    assert {key[3] for key in found} == {None, "dc1", "dc2", "several"}
    assert len({key[4] for key in found}) > 3
    without_hours = {key for key in expected if key[4] is None}
    assert len(result.latencies) == len(without_hours)

    # 500 to 509 came as hedges alone; 510 to 529 are stored as hedges and at home. One is another
    # producer's.
    assert result.hedging == [
        Hedging(TOPIC, None, 501, 521, 30, 10, 20, 20),
        Hedging(TOPIC, "dc1", 400, 400, 0, 0, 0, 0),
        Hedging(TOPIC, "dc2", 100, 120, 30, 10, 20, 20),
        Hedging(TOPIC, "unknown", 1, 1, 0, 0, 0, 0),
    ]
    assert (result.hedging[2].hedge_percent, result.hedging[2].surplus_percent) == (30, 20)
    hours = spark.read.parquet(str(output / "hedging")).where("hour_ms IS NOT NULL")
    assert hours.groupBy().sum("messages", "surplus").first() == (501, 20)

    taken = [line["messageId"] for line in lines if line["status"] < 300]
    (repeated,) = result.repeated
    assert repeated.repetitions == len(taken) - len(set(taken))
    assert (repeated.messages, repeated.unmatched, repeated.unreadable) == (491, 1, 1)

    assert json.loads((output / "result.json").read_text())["accuracy"] == 10_000


def hermes(*arguments):
    with pytest.raises(SystemExit) as end:
        app(["spark", "latency", *map(str, arguments)])
    return end.value.code


def test_without_journals_the_command_says_what_cannot_be_known(
    spark, scene, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "160")
    dcs = [argument for dc in DCS for argument in ("--dc", f"{dc}=embedded:{tmp_path / dc}")]
    assert hermes(*dcs, "--output", tmp_path / "out") == 0
    said = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert "shop.orders billing given up all 3 3 60,000 70,000 70,000 70,000" in lines
    assert "shop.orders dc2 100 30 30.00 10 20 20 20.00" in lines
    for unknown in (
        "publish to store: no record says when its log had it",
        "shop.orders$other: first attempt and delivered: no log says when",
    ):
        assert any(line.startswith(f"not known: {unknown}") for line in lines)
    assert (tmp_path / "out" / "snapshot.json").is_file()


def test_a_topic_that_no_datacentre_has_is_refused(scene, tmp_path, capsys):
    dc = f"dc1=embedded:{tmp_path / 'dc1'}"
    for arguments, said in (
        (("--topic", "shop.x"), "--topic shop.x: no datacentre has that topic"),
        (("--journal", f"shop.x$a={scene[2]}"), "--journal shop.x: no datacentre has that topic"),
    ):
        assert hermes("--dc", dc, "-o", tmp_path / "out", *arguments) == 2
        assert said in capsys.readouterr().err


def test_what_cannot_be_known_is_said_of_subscriptions_without_a_journal_only():
    said = list(not_known(["a.x"], [("a.x", "one")], [("a.x", "one"), ("a.x", "two")]))
    assert [line.partition(":")[0] for line in said] == [
        "publish to store",
        "a.x$two",
        "hedges that stored nothing",
    ]
    assert list(not_known([], [], [])) == []


def test_a_journal_is_named_with_its_subscription(tmp_path):
    file = tmp_path / "taken.ndjson"
    file.touch()
    assert journal_of(f"shop.orders$b={file}") == Journal("shop.orders", "b", str(file))
    for text, said in (
        (str(file), "write 'group.topic"),
        ("shop.orders=x", "write 'group.topic"),
        ("shop.orders$b", "there is no file named"),
        ("shop.orders$b=absent", "there is no file absent"),
    ):
        with pytest.raises(UsageWrong, match=said.replace("$", r"\$")):
            journal_of(text)
