"""What `hermes doctor` makes of what its probes saw: facts in, lines out."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.cli.doctor.checkup import OWN_TOPICS
from hermes_actors.cli.doctor.clock import ClockSeen, judge_clocks, judge_files_clock
from hermes_actors.cli.doctor.command import worst_of
from hermes_actors.cli.doctor.diagnosis import Grade, fine, odd, size_of, span_of, wrong
from hermes_actors.cli.doctor.disk import (
    FilesLimit,
    Folder,
    FolderSeen,
    judge_folder,
    judge_limit,
    look_at_folder,
)
from hermes_actors.cli.doctor.files import judge_dates
from hermes_actors.cli.doctor.kafka import judge_cluster
from hermes_actors.cli.doctor.ports import NodeSeen, PortSeen, judge_port, running_pids
from hermes_actors.cli.doctor.processes import listeners
from hermes_actors.cli.doctor.reach import OtlpEndpoint, collectors, judge_collector, judge_registry
from hermes_actors.cli.doctor.stored import LogFile, judge_log, judge_spool
from hermes_actors.config import Config, KafkaConfig
from hermes_actors.config.ports import Port
from hermes_actors.fallback.spool.reading import SpoolContent
from hermes_actors.log.embedded.schema import APPLICATION_ID, SCHEMA_VERSION
from hermes_actors.log.kafka.settings import configs_of
from hermes_actors.log.kafka.survey import BrokerSeen, ClusterSeen, TopicSeen
from hermes_actors.runtime.clock import SystemClock
from hermes_actors.telemetry.settings import telemetry_settings

GIB = 1_073_741_824
DAY_MS = 86_400_000


def grades(found):
    return [each.grade for each in found]


# Clocks.


def test_without_a_node_that_reports_clocks_are_not_compared_and_that_is_no_failure() -> None:
    for seen in ([], [ClockSeen("n1", 1_000, 1_000, None)]):
        (found,) = judge_clocks("dc1", seen, 900_000, 5_000)
        assert (found.grade, "not compared" in found.seen) == (Grade.OK, True)


def test_a_log_whose_last_record_is_of_the_future_is_told_without_a_running_node() -> None:
    (found,) = judge_clocks("dc1", [ClockSeen("n1", 30_000, 30_000, None)], 10_000, 5_000)
    assert found.grade is Grade.FAIL
    assert "20.0 s ahead of this machine's clock" in found.seen


def test_of_each_node_whose_clock_is_wrong_there_is_a_line() -> None:
    seen = [ClockSeen("n1", 1_000, 1_010, 1_011), ClockSeen("n2", 61_000, 1_020, 1_025)]
    ours, other = judge_clocks("dc1", seen, 1_030, 5_000)
    assert (ours.grade, other.grade) == (Grade.OK, Grade.FAIL)
    assert "60.0 s behind the clock of node n2" in other.seen


@given(st.integers(-100_000, 100_000), st.integers(1, 20_000), st.integers(0, 3_000))
def test_a_clock_is_judged_by_its_least_delayed_record(ahead_ms, limit_ms, delay_ms) -> None:
    now_ms = 1_000_000
    seen = [ClockSeen("n1", now_ms, now_ms + ahead_ms, now_ms + delay) for delay in (delay_ms, 0)]
    ours, *nodes = judge_clocks("dc1", seen, now_ms, limit_ms)
    assert (ours.grade is Grade.FAIL) == (abs(ahead_ms) > limit_ms) == bool(nodes)


def test_files_of_the_future_are_told() -> None:
    assert judge_files_clock("log", [], 5, 1).grade is Grade.OK
    assert judge_files_clock("log", [10.0, 90_000.0], 10_000, 5_000).grade is Grade.FAIL


# Disks.

SPOOL = Folder("spool.directory", Path("/s"), 4 * GIB, 15, "too late")
DISK = FolderSeen(
    is_there=True,
    nearest="/s",
    total_bytes=100 * GIB,
    free_bytes=50 * GIB,
    inodes_free=1_000_000,
    sync_ms=2.0,
)


@pytest.mark.parametrize(
    ("changed", "grade", "says"),
    [
        ({}, Grade.OK, "50.0 GiB free of 100.0 GiB, a write is on the disk after 2.0 ms"),
        ({"is_there": False, "nearest": "/"}, Grade.OK, "not there yet, a start makes it; /: "),
        ({"trouble": "is mounted read-only"}, Grade.FAIL, "/s is mounted read-only"),
        ({"free_bytes": 1_000}, Grade.FAIL, "1000 bytes free"),
        ({"inodes_free": 3}, Grade.FAIL, "only 3 inodes"),
        ({"inodes_free": None}, Grade.OK, "free"),
        ({"free_bytes": 3 * GIB}, Grade.WARN, "it may grow by 4.0 GiB"),
        ({"free_bytes": 3 * GIB, "used_bytes": 2 * GIB}, Grade.OK, "3.0 GiB free"),
        ({"total_bytes": 9_000 * GIB}, Grade.WARN, "free of 8.8 TiB"),
        ({"sync_ms": 40.0}, Grade.WARN, "40 ms: too late"),
        ({"sync_ms": None}, Grade.OK, "50.0 GiB free of 100.0 GiB"),
    ],
)
def test_a_folder_is_as_good_as_its_worst_property(changed, grade, says) -> None:
    found = judge_folder(SPOOL, msgspec.structs.replace(DISK, **changed))
    assert found.grade is grade
    assert says in found.seen
    assert bool(found.way_out) == (grade is not Grade.OK)


def test_a_full_disk_lacks_room_and_no_right() -> None:
    full = {"free_bytes": 0, "trouble": "takes no write: No space left on device"}
    found = judge_folder(SPOOL, msgspec.structs.replace(DISK, **full))
    assert (found.seen, found.way_out) == (
        "0 bytes free of 100.0 GiB",
        "make room, or name a folder on another disk",
    )


def test_a_folder_that_is_mounted_read_only_is_told_as_that(monkeypatch, tmp_path) -> None:
    # No right to write there helps.
    seen = os.statvfs(tmp_path)
    read_only = SimpleNamespace(f_flag=seen.f_flag | os.ST_RDONLY)
    monkeypatch.setattr(os, "statvfs", lambda _: read_only)
    monkeypatch.setattr(os, "access", lambda *_: False)
    folder = msgspec.structs.replace(SPOOL, path=tmp_path)
    assert look_at_folder(folder, SystemClock()).trouble == "is mounted read-only"


@pytest.mark.parametrize(
    ("most", "is_open", "grade"),
    [(1_024, 0, Grade.WARN), (20_000, 0, Grade.OK), (20_000, 19_000, Grade.FAIL)],
)
def test_the_limit_of_open_files_is_compared_with_what_the_configuration_allows(
    most, is_open, grade
) -> None:
    assert judge_limit(FilesLimit("process 7", most, is_open), 12_500).grade is grade


# Certificates.


@pytest.mark.parametrize(
    ("began_ms", "ends_ms", "grade", "says"),
    [
        (0, 400 * DAY_MS, Grade.OK, "good for another 300 d"),
        (0, 105 * DAY_MS, Grade.WARN, "good for another 5 d"),
        (0, 90 * DAY_MS, Grade.FAIL, "expired 10 d ago"),
        (103 * DAY_MS, 900 * DAY_MS, Grade.FAIL, "begins in 3 d"),
    ],
)
def test_a_certificate_is_told_before_it_ends(began_ms, ends_ms, grade, says) -> None:
    found = judge_dates("frontend.tls.certificate_file", began_ms, ends_ms, 100 * DAY_MS)
    assert found.grade is grade
    assert says in found.seen


# Ports.

CONFIG = Config(dc="dc1", node="n1")
MAIN = Port("frontend.port", "127.0.0.1", 8080, is_main=True)
OTHER = Port("management.port", "127.0.0.1", 8090)
READY = NodeSeen("dc1", "n1", "SERVING", isReady=True)


def held(*nodes: NodeSeen, holders=(7,), answer="") -> PortSeen:
    names = dict.fromkeys(holders, "hermes") or None
    return PortSeen(refusal=errno.EADDRINUSE, holders=names, nodes=list(nodes), answer=answer)


@pytest.mark.parametrize(
    ("seen", "grade", "says"),
    [
        (PortSeen(), Grade.OK, "free"),
        (PortSeen(refusal=errno.EACCES), Grade.FAIL, "Permission denied"),
        (PortSeen(refusal=errno.EADDRNOTAVAIL), Grade.FAIL, "assign requested address"),
        (held(READY), Grade.OK, "node n1 of dc1 (process 7 hermes), which is ready"),
        (held(READY, holders=()), Grade.OK, "a process that this user cannot see"),
        (held(READY, holders=(7, 8)), Grade.WARN, "2 processes share it"),
        (
            held(NodeSeen("dc1", "n1", "STARTING", reason="the log is away")),
            Grade.FAIL,
            "not ready, STARTING: the log is away",
        ),
        (
            held(NodeSeen("dc1", "n1", "SERVING", isReady=True, notices=("spooling",))),
            Grade.WARN,
            "ready all the same: spooling",
        ),
        (
            held(NodeSeen("dc1", "n1", "SERVING", isReady=True, notices=("slow",)), holders=(7, 8)),
            Grade.WARN,
            "ready all the same: slow: 2 processes share it",
        ),
        (held(NodeSeen("dc2", "n9", "SERVING", isReady=True)), Grade.FAIL, "node n9 of dc2, not"),
        (held(answer="it is nginx"), Grade.FAIL, "does not answer as a node does: it is nginx"),
    ],
)
def test_a_port_is_free_or_held_by_the_very_node(seen, grade, says) -> None:
    found = judge_port(CONFIG, MAIN, seen, seen)
    assert found.grade is grade
    assert says in found.seen


def test_another_port_belongs_to_the_process_that_has_the_first_one() -> None:
    assert running_pids(CONFIG, held(READY)) == {7}
    assert judge_port(CONFIG, OTHER, held(), held(READY)).grade is Grade.OK
    assert judge_port(CONFIG, OTHER, held(holders=(8,)), held(READY)).grade is Grade.FAIL
    assert judge_port(CONFIG, OTHER, held(), PortSeen()).grade is Grade.FAIL
    hangs = held(answer="no answer within 2.5 s")
    of_it = judge_port(CONFIG, OTHER, held(), hangs)
    assert (of_it.grade, of_it.seen) == (
        Grade.WARN,
        "held by process 7 hermes, which has frontend.port too",
    )
    assert judge_port(CONFIG, OTHER, held(holders=(8,)), hangs).grade is Grade.FAIL
    unseen = held(READY, holders=())
    assert judge_port(CONFIG, OTHER, held(holders=()), unseen).grade is Grade.OK


def test_a_file_that_a_process_closes_meanwhile_does_not_hide_the_port_that_it_listens_on(
    tmp_path,
) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net/tcp").write_text(
        "sl local_address rem_address st tx_queue:rx_queue tr:when retrnsmt uid timeout inode\n"
        "0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 501 1\n"
        "1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 502 1\n"
        "2: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 503 1\n"
    )
    for pid, inode in ((7, 501), (8, 502), (9, 503)):
        files = tmp_path / str(pid) / "fd"
        files.mkdir(parents=True)
        (tmp_path / str(pid) / "comm").write_text("hermes\n")
        # No link: reading it fails as it does for one that is gone.
        (files / "0").touch()
        (files / "1").symlink_to(f"socket:[{inode}]")
        (files / "2").touch()
    (tmp_path / "10").mkdir()
    assert listeners(8080, tmp_path) == {7: "hermes", 8: "hermes"}
    assert listeners(8082, tmp_path) is None


# What is stored.


def test_a_log_is_known_by_its_first_bytes_and_by_who_has_it_open() -> None:
    path = Path("/d/log.sqlite")
    whole = LogFile(path, 4_096, True, APPLICATION_ID, SCHEMA_VERSION, 7)
    assert judge_log(LogFile(path), ()).grade is Grade.OK
    assert judge_log(whole, {7}).grade is Grade.OK
    assert judge_log(whole, ()).grade is Grade.WARN
    hidden = judge_log(msgspec.structs.replace(whole, is_guess=True), ())
    assert (hidden.grade, "this user cannot look at" in hidden.seen) == (Grade.WARN, True)
    assert judge_log(msgspec.structs.replace(whole, is_sqlite=False), {7}).grade is Grade.FAIL
    assert judge_log(msgspec.structs.replace(whole, application_id=1), {7}).grade is Grade.FAIL
    assert judge_log(msgspec.structs.replace(whole, version=9), {7}).grade is Grade.FAIL


def test_beside_a_node_that_runs_what_it_does_not_have_open_is_not_taken_for_its_own() -> None:
    path = Path("/d/log.sqlite")
    whole = LogFile(path, 4_096, True, APPLICATION_ID, SCHEMA_VERSION)
    assert judge_log(whole, ()).grade is Grade.OK
    empty = SpoolContent("/s", "", 3, 0, 0, None, [], {}, 0)
    (spool,) = judge_spool(empty, {7}, 0)
    for found in (judge_log(LogFile(path), {7}), judge_log(whole, {7}), spool):
        assert found.grade is Grade.WARN
        assert "the node runs as process 7: it has another folder" in found.seen


def test_a_spool_that_has_lost_what_it_acknowledged_is_the_worst() -> None:
    empty = SpoolContent("/s", "7", 0, 0, 0, None, [], {}, 0)
    assert grades(judge_spool(empty, {7}, 0)) == [Grade.OK]
    assert grades(judge_spool(empty, {8}, 0)) == [Grade.OK, Grade.FAIL]
    waiting = msgspec.structs.replace(empty, entries=3, oldest_ms=1_000)
    (found,) = judge_spool(waiting, {7}, 61_000)
    assert (found.grade, "the oldest for 60.0 s" in found.seen) == (Grade.WARN, True)
    lost = msgspec.structs.replace(empty, damaged=2)
    assert grades(judge_spool(lost, {7}, 0)) == [Grade.FAIL, Grade.OK]


# Kafka.

KAFKA = KafkaConfig(replication_factor=3, min_insync_replicas=2)


def own_topic(name: str, **changed) -> TopicSeen:
    configs = configs_of(OWN_TOPICS[name]) | {"min.insync.replicas": "2"}
    configs |= changed.pop("configs", {})
    counts = {"partitions": 1, "replicas": 3, "in_sync": 3}
    return TopicSeen(name=name, configs=configs, **(counts | changed))


def cluster(**changed) -> ClusterSeen:
    broker = {"fetch_version": 17}
    return ClusterSeen(
        **{
            "dc": "dc1",
            "bootstrap": [BrokerSeen(address="k1:9092", **broker)],
            "brokers": [BrokerSeen(address=f"k{n}:9092", node=n, **broker) for n in (1, 2, 3)],
            "own_topics": [own_topic(name) for name in OWN_TOPICS],
            "creation_trouble": "",
            **changed,
        }
    )


def failures(seen: ClusterSeen) -> list[str]:
    found = judge_cluster(seen, KAFKA, OWN_TOPICS)
    return [f"{each.grade} {each.about}: {each.seen}" for each in found if each.grade != "OK"]


def test_a_cluster_as_a_node_needs_it_has_nothing_against_it() -> None:
    assert failures(cluster()) == []
    assert (
        failures(
            cluster(
                own_topics=[TopicSeen(name="_hermes.status", trouble="UnknownTopicOrPartition")]
            )
        )
        == []
    )


META = "_hermes.metadata"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"trouble": "TopicAuthorizationFailed"}, "FAIL … not permitted"),
        ({"leaderless": 1}, "FAIL … 1 of 1 partitions have no leader"),
        ({"in_sync": 1, "lagging": 1}, "FAIL … 1 replicas are in sync, min.insync.replicas is 2"),
        ({"in_sync": 2, "lagging": 1}, "WARN … 1 of 1 partitions have replicas that lag behind"),
        ({"replicas": 1, "in_sync": 1}, "FAIL … min.insync.replicas 2 is above its 1 replicas"),
        ({"replicas": 2, "in_sync": 2}, "WARN … 2 replicas, kafka.replication_factor is 3"),
        ({"configs": {"min.insync.replicas": "1"}}, "WARN … min.insync.replicas 1, kafka.min"),
        ({"configs": {"unclean.leader.election.enable": "true"}}, "WARN … unclean.leader.electi"),
        ({"configs": {"cleanup.policy": "compact"}}, "FAIL … cleanup.policy=compact loses"),
        ({"configs": {"retention.ms": "1000"}}, "FAIL … kept for 1.0 s, hermes needs its records"),
        ({"configs": {"retention.bytes": "5"}}, "FAIL … retention.bytes=5"),
        ({"configs": {"max.message.bytes": "1024"}}, "FAIL … max.message.bytes is 1.0 KiB"),
    ],
)
def test_a_topic_that_is_not_as_a_node_needs_it_is_told_with_the_command(changed, says) -> None:
    found = failures(cluster(own_topics=[own_topic(META, **changed)]))
    grade, _, text = says.partition(" … ")
    assert any(each.startswith(f"{grade} Kafka of dc1, topic {META}: {text}") for each in found), (
        found
    )


def test_a_broker_whose_advertised_address_cannot_be_reached_is_told_by_its_id() -> None:
    brokers = [BrokerSeen(address="inside:9092", node=4, trouble="its name is not known")]
    found = failures(cluster(brokers=brokers, own_topics=[]))
    assert "FAIL Kafka of dc1, broker 4: it is told to be at inside:9092" in found[0]
    assert "1 are up, and new topics want kafka.replication_factor 3" in found[1]


def test_one_silent_bootstrap_server_of_two_is_a_warning_and_all_of_them_a_failure() -> None:
    silent = BrokerSeen(address="k9:9092", trouble="the connection was refused")
    both = [silent, BrokerSeen(address="k1:9092")]
    assert [each[:4] for each in failures(cluster(bootstrap=both))] == ["WARN"]
    refused = BrokerSeen(
        address="k9:9092", trouble="refused the log-in of 'ada'; see sasl_username"
    )
    only = next(judge_cluster(cluster(bootstrap=[refused]), KAFKA, OWN_TOPICS))
    assert (only.seen, only.way_out) == ("refused the log-in of 'ada'", "see sasl_username")
    away = ClusterSeen(dc="dc1", bootstrap=[silent], trouble="no bootstrap server can be used")
    assert [each[:4] for each in failures(away)] == ["FAIL"]


@pytest.mark.parametrize(
    ("trouble", "says"),
    [
        ("ClusterAuthorizationFailed", "not permitted"),
        ("Replication factor: 3 larger than available brokers: 1.", "Replication factor: 3"),
        (None, "no answer"),
    ],
)
def test_what_keeps_a_node_from_making_topics_is_known_from_a_dry_run(trouble, says) -> None:
    (found,) = failures(cluster(creation_trouble=trouble))
    assert f"creating topics: {says}" in found


@pytest.mark.parametrize(
    ("trouble", "way_out"),
    [("TopicAuthorizationFailed", "ACLs"), ("no answer within 5000 ms", "brokers' logs")],
)
def test_what_cannot_be_read_is_either_a_right_or_a_broker(trouble, way_out) -> None:
    found = list(judge_cluster(cluster(stamps_trouble=trouble), KAFKA, OWN_TOPICS))
    assert found[-1].grade is Grade.FAIL
    assert way_out in found[-1].way_out


# What else is asked.


def test_collectors_are_found_by_the_standard_variables() -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://otel.test/v1?key=secret"}
    assert collectors(telemetry_settings(env), env) == [
        OtlpEndpoint("traces and metrics", "otel.test", 443, "OTEL_EXPORTER_OTLP_ENDPOINT")
    ]
    env = {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    (found,) = collectors(telemetry_settings(env), env)
    assert (found.signals, found.host, found.port) == ("traces", "localhost", 4317)
    assert collectors(telemetry_settings({}), {}) == []
    assert judge_collector(found, "").grade is Grade.OK
    assert judge_collector(found, "Connection refused").grade is Grade.WARN


def test_a_registry_that_does_not_answer_is_a_failure() -> None:
    assert judge_registry("http://r.test", "").grade is Grade.OK
    assert judge_registry("http://r.test", "no answer").grade is Grade.FAIL


# All together.


@given(st.lists(st.sampled_from([fine("a", "b", "c"), odd("a", "b", "c", "d")])))
def test_one_failure_is_enough(others) -> None:
    failure = wrong("a", "b", "c", "d")
    assert worst_of([*others, failure]) is worst_of([failure, *others]) is Grade.FAIL
    assert worst_of(others) is not Grade.FAIL


@given(st.floats(0, 1e15), st.floats(0, 1e18))
def test_amounts_have_a_number_and_a_unit(duration_ms, size_bytes) -> None:
    for text in (span_of(duration_ms), size_of(size_bytes)):
        number, unit = text.split()
        assert float(number) >= 0
        assert unit
