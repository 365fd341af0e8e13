"""The verdicts of `hermes doctor` that need no server."""

from datetime import UTC, datetime, timedelta

import pytest
import trustme
from cryptography import x509

from hermes_actors.cli.doctor.findings import certificate_finding as judged
from hermes_actors.cli.doctor.kafka import judge_clocks, judge_cluster
from hermes_actors.log.kafka.survey import ClusterSeen

NOW = datetime(2030, 6, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("days", "grade"), [(-1, "FAIL"), (0, "FAIL"), (13, "WARN"), (15, "OK"), (400, "OK")]
)
def test_a_certificate_is_renewed_two_weeks_before_its_end(days, grade):
    leaf = trustme.CA().issue_cert("a.test", not_after=NOW + timedelta(days=days, seconds=-1))
    shown = x509.load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes())
    finding = judged("files", "a", shown, round(1_000 * NOW.timestamp()))
    assert finding.grade == grade


def grades(found):
    return [each.grade for each in found]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (ClusterSeen({"a:1": "refused", "b:1": "refused"}), ["FAIL", "FAIL"]),
        (ClusterSeen({"a:1": "refused", "b:1": ""}, {"b:1": ""}), ["WARN", "OK"]),
        (ClusterSeen({"a:1": ""}, {"a:1": "", "b:1": "unknown name"}), ["FAIL", "OK"]),
        (ClusterSeen({"a:1": ""}, {"a:1": ""}, 9, 2), ["OK", "WARN"]),
    ],
)
def test_a_cluster_fails_where_nodes_cannot_use_it(seen, expected):
    assert grades(judge_cluster("Kafka of dc1", seen, 1)) == expected


def test_too_few_brokers_for_the_replicas_are_a_failure():
    assert grades(judge_cluster("a", ClusterSeen({"a:1": ""}, {"a:1": ""}), 3)) == ["FAIL"]


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        ({}, ["OK"]),
        ({"node n1": 900}, ["OK"]),
        ({"node n1": 900, "this machine": -900}, ["OK"]),
        ({"node n1": -1_100, "this machine": 0}, ["FAIL"]),
        ({"node n1": 0, "this machine": 1_100}, ["FAIL"]),
    ],
)
def test_clocks_agree_within_the_limit(behind, expected):
    assert grades(judge_clocks("dc1", behind, 1_000)) == expected
