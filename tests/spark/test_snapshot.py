import pytest

from hermes_local.failures import LaunchFailed
from hermes_spark.snapshot import (
    Committed,
    Datacentre,
    EmbeddedLog,
    KafkaLog,
    PartitionRange,
    Snapshot,
    load_snapshot,
)

SNAPSHOT = Snapshot(
    1_700_000_000_000,
    {
        "dc1": Datacentre(
            KafkaLog("127.0.0.1:9092", "client.properties"),
            "ns",
            topics={
                "shop.orders": [PartitionRange(0, 3, 9), PartitionRange(1, 0, 0)],
                "shop.bills": [PartitionRange(0, 0, 4)],
            },
            groups={"ns_shop_orders_a": {"shop.orders": [Committed(0, 5, "h1:1:1:0:0:")]}},
        ),
        "dc2": Datacentre(EmbeddedLog("data/dc2")),
    },
)


def test_a_snapshot_is_read_as_it_was_written(tmp_path):
    SNAPSHOT.save(tmp_path / "snapshot.json")
    assert load_snapshot(tmp_path / "snapshot.json") == SNAPSHOT


def test_what_is_no_snapshot_is_named(tmp_path):
    (tmp_path / "a.json").write_text('{"taken_at_ms": 1}')
    with pytest.raises(LaunchFailed, match=r"a\.json is not a snapshot: .*`datacentres`.*take one"):
        load_snapshot(tmp_path / "a.json")


def test_a_snapshot_is_cut_to_some_topics():
    cut = SNAPSHOT.only(["shop.bills", "shop.none"])
    assert list(cut.datacentres["dc1"].topics) == ["shop.bills"]
    assert cut.datacentres["dc1"].records == 4
    assert cut.datacentres["dc1"].groups == SNAPSHOT.datacentres["dc1"].groups
    assert SNAPSHOT.datacentres["dc1"].topic_prefix == "ns_"
