"""How many series many subscriptions make, whatever comes of their messages."""

from hermes_actors.consumer.delivery.measures import DELIVERING, STATUSES_MAX, SubscriptionMeasures
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.model.names import SubscriptionName, TopicName
from hermes_actors.telemetry.metrics import Metrics, render

SERIES_MAX = 40


def measured(metrics: Metrics, number: int) -> SubscriptionMeasures:
    name = SubscriptionName(TopicName("shop", f"orders{number // 10}"), f"s{number}")
    return SubscriptionMeasures(metrics, name)


def series(metrics: Metrics) -> int:
    return sum(not line.startswith(b"#") for line in render([metrics]).splitlines())


def test_many_subscriptions_have_forty_series_each_at_most():
    metrics = Metrics("hermes_consumers", meanings=DELIVERING)
    for number in range(500):
        measured(metrics, number).answered((), SendOutcome(200), 0.1)
    assert series(metrics) <= SERIES_MAX * 500


def test_no_series_grows_with_messages_or_with_what_endpoints_answer():
    metrics = Metrics("hermes_consumers", meanings=DELIVERING)
    measures = measured(metrics, 1)
    before = series(metrics)
    for status in range(100, 1_000):
        for _ in range(3):
            measures.answered((), SendOutcome(status), 0.1)
    assert series(metrics) <= before + STATUSES_MAX + 10
    flow = measures.flow()
    assert (flow.codes_2xx, flow.codes_4xx, flow.codes_5xx) == (300, 300, 300)
