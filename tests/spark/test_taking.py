"""A snapshot tells what is stored and settled, in an order in which nothing looks lost."""

import pytest

from hermes_actors.cli.main import app
from hermes_actors.log.base import Commit
from hermes_spark import taking
from hermes_spark.snapshot import (
    Committed,
    Datacentre,
    EmbeddedLog,
    KafkaLog,
    PartitionRange,
    load_snapshot,
)
from hermes_spark.sources.embedded_file import EmbeddedFile
from hermes_spark.sources.failures import SourceFailed
from hermes_spark.taking import take_snapshot
from tests.spark.stored_scene import commit_embedded, fill_embedded, fill_kafka, native

TOPICS = {"shop.orders": [[native(1), native(2)], []], "_hermes.dlq.shop": [[native(3)]]}
RANGES = {
    "_hermes.dlq.shop": [PartitionRange(0, 0, 1)],
    "shop.orders": [PartitionRange(0, 0, 2), PartitionRange(1, 0, 0)],
}


@pytest.mark.kafka
def test_kafka_is_asked_for_ranges_and_commits_of_its_namespace(spark, kafka_cluster, tmp_path):
    servers = kafka_cluster.bootstrap_servers
    namespace = tmp_path.name.replace("_", "-")
    fill_kafka(servers, f"{namespace}_", TOPICS, **{f"{namespace}_shop_orders_a": 2, "other": 1})
    described = {"dc1": Datacentre(KafkaLog(",".join(servers)), namespace)}
    taken = take_snapshot(described, 5, lambda: spark)
    assert taken.taken_at_ms == 5
    assert taken.datacentres["dc1"].topics == RANGES
    assert taken.datacentres["dc1"].groups == {
        f"{namespace}_shop_orders_a": {"shop.orders": [Committed(0, 2, "m")]}
    }


def test_a_kafka_that_is_away_is_one_sentence(spark, tmp_path):
    options = tmp_path / "client.properties"
    options.write_text("request.timeout.ms=500\ndefault.api.timeout.ms=1000\n")
    described = {"dc1": Datacentre(KafkaLog("127.0.0.1:1", str(options)))}
    with pytest.raises(SourceFailed, match=r"Kafka at 127\.0\.0\.1:1 does not answer: \w+Exc"):
        take_snapshot(described, 0, lambda: spark)


def test_commits_then_dead_letters_then_topics_each_in_all_datacentres(tmp_path, monkeypatch):
    for dc in ("dc1", "dc2"):
        fill_embedded(tmp_path / dc, TOPICS)
    asked = []

    class Watched(EmbeddedFile):
        def commits(self):
            asked.append(("commits", self.path.parent.name))
            return super().commits()

        def ranges(self, topics):
            asked.append((*sorted(topics), self.path.parent.name))
            return super().ranges(topics)

    monkeypatch.setattr(taking, "EmbeddedFile", Watched)
    described = {dc: Datacentre(EmbeddedLog(str(tmp_path / dc))) for dc in ("dc1", "dc2")}
    take_snapshot(described, 0, lambda: None)
    assert asked == [
        (what, dc)
        for what in ("commits", "_hermes.dlq.shop", "shop.orders")
        for dc in ("dc1", "dc2")
    ]


def test_dead_letters_that_come_between_are_left_out(tmp_path, monkeypatch):
    fill_embedded(tmp_path / "dc1", {"shop.orders": [[native(1)]]})

    class Watched(EmbeddedFile):
        def ranges(self, topics):
            found = super().ranges(topics)
            if not topics:
                # The first dead letter of all, between the look at those and that at topics.
                fill_embedded(tmp_path / "dc1", {"_hermes.dlq.shop": [[native(2)]]})
            return found

    monkeypatch.setattr(taking, "EmbeddedFile", Watched)
    described = {"dc1": Datacentre(EmbeddedLog(str(tmp_path / "dc1")))}
    taken = take_snapshot(described, 0, lambda: None)
    assert list(taken.datacentres["dc1"].topics) == ["shop.orders"]


def test_the_command_writes_a_snapshot_without_java_for_embedded_logs(tmp_path, capsys):
    fill_embedded(tmp_path / "dc1", TOPICS)
    commit_embedded(tmp_path / "dc1", "shop_orders_a", "shop.orders", {0: Commit(1, "h1:0:0:0:0:")})
    file = tmp_path / "s.json"
    with pytest.raises(SystemExit) as end:
        app(["spark", "snapshot", "--dc", f"dc1=embedded:{tmp_path / 'dc1'}", "-o", str(file)])
    assert end.value.code == 0
    assert "dc1: 3 records in 2 topics, 1 consumer groups" in capsys.readouterr().out
    taken = load_snapshot(file).datacentres["dc1"]
    assert taken.topics == RANGES
    assert taken.groups == {"shop_orders_a": {"shop.orders": [Committed(0, 1, "h1:0:0:0:0:")]}}
