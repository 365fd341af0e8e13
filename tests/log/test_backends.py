"""The logs' counters and gauges, as a node shows them."""

from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families

from hermes_actors.log.backends import embedded_log_metrics, kafka_log_metrics
from hermes_actors.log.embedded.writer import WriterStatistics
from hermes_actors.log.kafka.producers import ProducerStatistics
from hermes_actors.telemetry.metrics import Metrics, render


class Counting(Struct):
    """A log that has done what its statistics say."""

    done: object
    accepted_missing: int = 5
    refusal: str = "its files are gone"

    def statistics(self):
        return self.done


def shown(metrics: Metrics) -> dict[str, dict[str, float]]:
    """Type → name → value."""
    found: dict[str, dict[str, float]] = {"counter": {}, "gauge": {}}
    for family in text_string_to_metric_families(render([metrics]).decode()):
        for sample in family.samples:
            found[family.type][sample.name] = sample.value
    return found


def test_of_kafkas_log_only_what_comes_and_goes_is_a_gauge():
    done = ProducerStatistics(True, "", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, {"fenced": 11, "lost": 1})
    assert shown(kafka_log_metrics(Counting(done))) == {
        "gauge": {
            "hermes_log_is_connected": 1,
            "hermes_log_in_flight": 8,
            "hermes_log_connections": 9,
        },
        "counter": {
            "hermes_log_appends_total": 1,
            "hermes_log_records_total": 2,
            "hermes_log_bytes_total": 3,
            "hermes_log_stored_total": 4,
            "hermes_log_refused_total": 5,
            "hermes_log_unavailable_total": 6,
            "hermes_log_unknown_total": 7,
            "hermes_log_lost_total": 10,
            "hermes_log_producer_ids_replaced_total": 12,
        },
    }


def test_of_the_embedded_log_all_is_counted():
    assert shown(embedded_log_metrics(Counting(WriterStatistics(1, 2, 3, 4)))) == {
        "gauge": {"hermes_log_is_failing": 1},
        "counter": {
            "hermes_log_commits_total": 1,
            "hermes_log_records_total": 2,
            "hermes_log_bytes_total": 3,
            "hermes_log_commits_failed_total": 4,
            "hermes_log_accepted_missing_total": 5,
        },
    }
