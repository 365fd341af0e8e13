"""An archive has each record of all logs once, for whoever reads its folder."""

import json
from contextlib import closing
from datetime import UTC, datetime

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from hermes_actors.cli.main import app
from hermes_actors.log.embedded.opening import open_store
from hermes_actors.log.embedded.schema import FILE_NAME
from hermes_actors.model.record import Record
from hermes_spark.archive import archived
from hermes_spark.archive.append import append
from hermes_spark.archive.commits import load_manifest, open_archive
from hermes_spark.archive.compaction import compact
from hermes_spark.archive.expiry import expire
from hermes_spark.archive.layout import RECORDS
from hermes_spark.archive.manifest import Gap
from hermes_spark.columns import COLUMNS
from hermes_spark.snapshot import Datacentre, EmbeddedLog, KafkaLog
from hermes_spark.sources import stored
from hermes_spark.sources.failures import SourceFailed
from hermes_spark.taking import take_snapshot
from tests.spark.archive_oracle import archived_plainly, logged_in_file, logged_in_kafka
from tests.spark.stored_scene import ODD, T0_MS, fill_embedded, fill_kafka, foreign, native

HOUR_MS = 3_600_000


def at(record, timestamp_ms):
    return Record(record.key, record.value, record.headers, timestamp_ms)


TOPICS = {
    "shop.orders": [
        [record for record, _ in ODD],
        [],
        [at(native(n), T0_MS + n * HOUR_MS // 10) for n in range(25)],
    ],
    "shop.bills": [[native(n, "hedge") for n in range(4)]],
    "_hermes.dlq.shop": [[native(7)]],
}
MORE = {"shop.orders": [[native(50)], [native(51), at(native(52), T0_MS + HOUR_MS)], []]}


def taken(described, spark, at_ms=T0_MS):
    return take_snapshot(described, at_ms, lambda: spark)


def embedded(folder):
    return Datacentre(EmbeddedLog(str(folder)))


def run(spark, folder, described, offsets_max=100, at_ms=T0_MS):
    with open_archive(folder, at_ms) as archive:
        return append(lambda: spark, archive, taken(described, spark, at_ms), offsets_max)


@pytest.mark.parametrize("kind", ["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def test_each_run_adds_what_is_new_and_nothing_twice(kind, request, spark, tmp_path):
    folder = tmp_path / "archive"
    if kind == "embedded":
        described = {dc: embedded(tmp_path / dc) for dc in ("dc1", "dc2")}

        def fill(topics):
            for dc in described:
                fill_embedded(tmp_path / dc, topics, chunk_records=4)

        def logged():
            of_each = (logged_in_file(dc, tmp_path / dc / FILE_NAME) for dc in described)
            return [row for rows in of_each for row in rows]
    else:
        servers = request.getfixturevalue("kafka_cluster").bootstrap_servers
        namespace = tmp_path.name.replace("_", "-")
        described = {"dc1": Datacentre(KafkaLog(",".join(servers)), namespace)}

        def fill(topics):
            fill_kafka(servers, f"{namespace}_", topics)

        def logged():
            counts = {topic: len(partitions) for topic, partitions in TOPICS.items()}
            return logged_in_kafka("dc1", servers, f"{namespace}_", counts)

    fill(TOPICS)
    run(spark, folder, described, 30)
    assert archived_plainly(folder / RECORDS) == logged()
    fill(MORE)
    run(spark, folder, described, at_ms=T0_MS + 1)
    rows = logged()
    assert archived_plainly(folder / RECORDS) == rows
    assert len(rows) == len(described) * (46 + 3)
    held = load_manifest(folder)
    assert sum(each.records for dc in held.topics.values() for each in dc.values()) == len(rows)
    # Nothing is new: nothing is written, and Spark is not even asked for.
    with open_archive(folder, 2) as archive:
        append(lambda: pytest.fail("Spark"), archive, taken(described, spark, T0_MS + 2))
    assert load_manifest(folder) == held


def test_what_is_archived_is_read_back_in_the_columns_of_the_logs(spark, tmp_path):
    folder = tmp_path / "archive"
    described = {dc: embedded(tmp_path / dc) for dc in ("dc1", "dc2")}
    for dc in described:
        fill_embedded(tmp_path / dc, TOPICS)
    run(spark, folder, described)
    snapshot = taken(described, spark)
    both = archived(spark, folder), stored(spark, snapshot)
    assert both[0].columns == both[1].columns == list(COLUMNS)
    assert both[0].schema.simpleString() == both[1].schema.simpleString()
    one, other = (sorted(map(repr, rows.collect())) for rows in both)
    assert one == other
    some = archived(spark, folder, topics=["shop.bills"], columns=["via", "offset"])
    assert sorted(map(tuple, some.collect())) == sorted(2 * [("hedge", n) for n in range(4)])
    assert archived(spark, folder, topics=["shop.other"]).collect() == []


def test_files_of_a_commit_that_is_under_way_are_not_read_back(spark, tmp_path):
    folder = tmp_path / "archive"
    fill_embedded(tmp_path / "dc1", {"shop.bills": TOPICS["shop.bills"]})
    run(spark, folder, {"dc1": embedded(tmp_path / "dc1")})
    (file,) = (folder / RECORDS).rglob("*.parquet")
    sequence = load_manifest(folder).sequence
    assert file.name == f"dc1-{sequence:08d}-0.parquet"
    file.with_name(f"dc1-{sequence + 1:08d}-0.parquet").write_bytes(file.read_bytes())
    assert archived(spark, folder).count() == 4


def test_timestamps_that_no_calendar_has_are_archived_too(spark, tmp_path):
    stamps = [-1, 0, 2**62, -(2**62), 253_402_300_800_000]
    records = [at(foreign(b"x"), stamp) for stamp in stamps]
    fill_embedded(tmp_path / "dc1", {"shop.odd": [records]})
    run(spark, tmp_path / "archive", {"dc1": embedded(tmp_path / "dc1")})
    assert [row[4] for row in archived_plainly(tmp_path / "archive" / RECORDS)] == stamps
    dates = {path.name for path in (tmp_path / "archive" / RECORDS / "topic=shop.odd").iterdir()}
    assert dates == {
        f"date={day}" for day in ("0001-01-01", "1969-12-31", "1970-01-01", "9999-12-31")
    }


def test_what_retention_took_before_the_archive_came_is_a_recorded_gap(spark, tmp_path):
    folder, described = tmp_path / "archive", {"dc1": embedded(tmp_path / "dc1")}
    records = [native(n) for n in range(20)]
    fill_embedded(tmp_path / "dc1", {"shop.orders": [records[:8]]})
    run(spark, folder, described)
    fill_embedded(tmp_path / "dc1", {"shop.orders": [records[8:]]})
    retain_from(tmp_path / "dc1", 12)
    found = run(spark, folder, described, at_ms=T0_MS + 5)
    gap = Gap(8, 12, T0_MS + 5)
    assert [tuple(each) for each in found.gaps] == [("dc1", "shop.orders", 0, gap)]
    assert load_manifest(folder).partition("dc1", "shop.orders", 0).gaps == (gap,)
    offsets = [row[3] for row in archived_plainly(folder / RECORDS)]
    assert offsets == [*range(8), *range(12, 20)]


def test_what_is_taken_between_snapshot_and_reading_ends_the_run_and_leaves_what_was_done(
    spark, tmp_path
):
    folder, described = tmp_path / "archive", {"dc1": embedded(tmp_path / "dc1")}
    fill_embedded(tmp_path / "dc1", {"shop.orders": [[native(n) for n in range(20)]]})
    snapshot = taken(described, spark)
    with (
        open_archive(folder, 0) as archive,
        pytest.raises(
            SourceFailed, match=r"^dc1: shop\.orders/0: retention has removed offsets 8 to 11 since"
        ),
    ):
        append(
            lambda: spark,
            archive,
            snapshot,
            8,
            lambda _: retain_from(tmp_path / "dc1", 12),
        )
    assert [row[3] for row in archived_plainly(folder / RECORDS)] == list(range(8))
    run(spark, folder, described, at_ms=T0_MS + 1)
    assert [row[3] for row in archived_plainly(folder / RECORDS)] == [*range(8), *range(12, 20)]


@pytest.mark.kafka
def test_what_kafka_no_longer_holds_ends_the_run_with_one_sentence(spark, kafka_cluster, tmp_path):
    servers = ",".join(kafka_cluster.bootstrap_servers)
    namespace = tmp_path.name.replace("_", "-")
    fill_kafka(servers.split(","), f"{namespace}_", {"shop.bills": [[native(n) for n in range(9)]]})
    snapshot = taken({"dc1": Datacentre(KafkaLog(servers), namespace)}, spark)
    place = TopicPartition(f"{namespace}_shop.bills", 0, 4)
    # Without a name it would be gone before it has asked.
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_records([place])[place].result()
    said = (
        r"_shop\.bills-0: Kafka no longer holds all of the offsets 0 to 8 that the snapshot names"
    )
    with open_archive(tmp_path / "archive", 0) as archive, pytest.raises(SourceFailed, match=said):
        append(lambda: spark, archive, snapshot)


def retain_from(folder, start):
    with closing(open_store(folder, accepts_damage=False)) as store:
        store.begin()
        store.connection.execute("UPDATE partition SET start = ?", (start,))
        store.commit()


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_closed_hours_are_compacted_and_hours_that_are_old_go(spark, tmp_path):
    folder = tmp_path / "archive"
    described = {dc: embedded(tmp_path / dc) for dc in ("dc1", "dc2")}
    for number in range(3):
        for dc in described:
            fill_embedded(tmp_path / dc, {"shop.orders": [TOPICS["shop.orders"][2]]})
        run(spark, folder, described, at_ms=T0_MS + number)
    rows = archived_plainly(folder / RECORDS)
    assert len(rows) == 150
    before = {path: files_in(path) for path in (folder / RECORDS).glob("*/*/*")}
    assert len(before) == 3
    # The last hour has just ended.
    last = max(before)
    end_ms = (T0_MS + 24 * HOUR_MS // 10) // HOUR_MS * HOUR_MS + HOUR_MS
    with open_archive(folder, 0) as archive:
        assert [each.path for each in compact(archive, end_ms)] == [
            str(path.relative_to(folder)) for path in sorted(before)[:-1]
        ]
    assert archived_plainly(folder / RECORDS) == rows
    assert archived(spark, folder).count() == 150
    for path, files in before.items():
        assert len(files_in(path)) == (len(files) if path == last else 2)
    # What comes late for a compacted hour is put together with it in turn.
    first = min(before)
    late = [at(native(900), T0_MS)]
    fill_embedded(tmp_path / "dc1", {"shop.orders": [late]})
    (first / "by-hand").write_text("kept")
    run(spark, folder, described, at_ms=T0_MS + 9)
    with open_archive(folder, 0) as archive:
        assert [each.path for each in compact(archive, end_ms)] == [str(first.relative_to(folder))]
    assert len(files_in(first)) == 3
    (first / "by-hand").unlink()
    assert len(archived_plainly(folder / RECORDS)) == 151

    until = datetime.fromtimestamp(end_ms / 1_000 - 3_600, UTC)
    with open_archive(folder, 0) as archive:
        (deleted,) = expire(archive, end_ms - HOUR_MS)
    assert list((folder / RECORDS).glob("*/*/*")) == [last]
    left = len(archived_plainly(folder / RECORDS))
    assert (deleted.topic, deleted.hours, deleted.records) == ("shop.orders", 2, 151 - left)
    expired = load_manifest(folder).expired["shop.orders"]
    assert expired.before == until.isoformat()[:13]
    assert (expired.hours, expired.records) == (2, deleted.records)
    assert archived(spark, folder).count() == left
    with open_archive(folder, 0) as archive:
        assert list(expire(archive, end_ms - HOUR_MS)) == []


@pytest.mark.slow
def test_a_merge_of_large_rows_makes_several_row_groups(tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    from hermes_spark.archive import compaction

    monkeypatch.setattr(compaction, "GROUP_BYTES", 50_000)
    monkeypatch.setattr(compaction, "_READ_BYTES", 10_000)
    tables = [
        pa.table({"offset": range(k, k + 50), "value": [bytes([k]) * 2_000] * 50}) for k in (0, 50)
    ]
    paths = [tmp_path / f"{number}.parquet" for number in range(2)]
    for table, path in zip(tables, paths, strict=True):
        parquet.write_table(table, path, use_dictionary=False, compression="none")
    compaction.merge(paths, tmp_path / "all.parquet")
    assert parquet.read_table(tmp_path / "all.parquet") == pa.concat_tables(tables)
    assert parquet.read_metadata(tmp_path / "all.parquet").num_row_groups == 4


# The command.


def hermes(*arguments):
    with pytest.raises(SystemExit) as end:
        app(["spark", "archive", *map(str, arguments)])
    return end.value.code


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_command_appends_tells_what_is_missing_and_shows_it(spark, tmp_path, capsys):
    folder, dc = tmp_path / "archive", f"dc1=embedded:{tmp_path / 'dc1'}"
    fill_embedded(tmp_path / "dc1", TOPICS | {"_hermes.status": [[native(3)]]})
    assert hermes("append", folder, "--dc", dc, "--batch-offsets", 25) == 0
    said = capsys.readouterr().out
    assert "25 of 46 offsets\n46 of 46 offsets\n" in said
    assert "46 records archived in all" in said
    fill_embedded(tmp_path / "dc1", {"shop.bills": [[native(n) for n in range(9)]]})
    retain_from(tmp_path / "dc1", 6)
    assert hermes("append", folder, "--dc", dc, "--topic", "shop.bills") == 1
    said = capsys.readouterr()
    assert "53 records archived in all" in said.out
    assert "shop.bills/0: offsets 4 to 5 are not in the archive" in said.err
    assert hermes("show", folder) == 0
    assert "shop.bills        dc1  11       2" in capsys.readouterr().out
    assert hermes("show", folder, "--json") == 0
    shown = {each["topic"]: each for each in json.loads(capsys.readouterr().out)}
    assert shown.keys() == TOPICS.keys()
    assert shown["shop.bills"]["gap_offsets"] == 2
    assert shown["shop.bills"]["kept"]["files"] == 2
    assert hermes("compact", folder) == 0
    assert capsys.readouterr().out.startswith("compacted: ")
    assert hermes("expire", folder, "--keep", "1d") == 0
    assert "shop.bills: deleted 1 hours, 11 records" in capsys.readouterr().out


def test_the_command_says_what_is_wrong_in_one_line(tmp_path, capsys):
    fill_embedded(tmp_path / "dc1", {"shop.empty": [[]]})
    dc = f"dc1=embedded:{tmp_path / 'dc1'}"
    for arguments, code, said in (
        (("show", tmp_path), 1, "there is no archive in"),
        (("compact", tmp_path), 1, "there is no archive in"),
        (("expire", tmp_path, "--keep", "1d"), 1, "there is no archive in"),
        (("expire", tmp_path, "--keep", "soon"), 2, "expected a duration such as 90d"),
        (("append", tmp_path / "a", "--dc", dc, "--topic", "shop.x"), 2, "--topic shop.x: no data"),
        (("append", tmp_path / "a"), 2, "no datacentre is named"),
        (
            ("append", tmp_path / "a", "--dc", dc, "--snapshot", "s"),
            2,
            "--snapshot has the datacentres",
        ),
    ):
        assert hermes(*arguments) == code
        assert said in capsys.readouterr().err
