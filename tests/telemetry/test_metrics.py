"""What is counted is what Prometheus reads, and quantiles are off by 20 % at most."""

import math

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from hermes_actors.telemetry.metrics import Metrics, Timer, render, render_in_turns

durations = st.floats(1e-4, 3_500, allow_nan=False)


def samples(*parts: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(render(parts).decode())
        for sample in family.samples
    }


def test_a_counter_is_shown_as_total_under_the_prefix() -> None:
    metrics = Metrics("hermes_frontend")
    metrics.counter("topic_published", topic="shop.orders").add()
    metrics.counter("topic_published", topic="shop.orders").add(4)
    assert samples(metrics) == {
        ("hermes_frontend_topic_published_total", (("topic", "shop.orders"),)): 5
    }


def test_the_order_of_labels_does_not_matter() -> None:
    metrics = Metrics("p")
    assert metrics.counter("c", a="1", b="2") is metrics.counter("c", b="2", a="1")
    assert metrics.timer("t", a="1", b="2") is metrics.timer("t", b="2", a="1")


def test_a_gauge_is_read_when_scraped_and_the_later_one_counts() -> None:
    metrics = Metrics("p")
    level = [1.0]
    metrics.gauge("level", lambda: -1)
    metrics.gauge("level", lambda: level[0])
    level[0] = 7
    assert samples(metrics) == {("p_level", ()): 7}


def test_what_somebody_else_counts_is_shown_as_a_counter() -> None:
    metrics = Metrics("p")
    count = [1]
    metrics.total("records", lambda: count[0], dc="dc1")
    count[0] = 7
    assert samples(metrics) == {("p_records_total", (("dc", "dc1"),)): 7}
    assert b"# TYPE p_records_total counter\n" in render([metrics])
    metrics.forget(dc="dc1")
    assert samples(metrics) == {}


def test_a_timer_is_shown_in_seconds_with_quantiles_count_and_sum() -> None:
    metrics = Metrics("p")
    metrics.timer("send", topic="a.b").observe(0.5, count=3)
    shown = samples(metrics)
    topic = ("topic", "a.b")
    assert shown[("p_send_seconds_count", (topic,))] == 3
    assert shown[("p_send_seconds_sum", (topic,))] == 1.5
    for quantile in ("0.5", "0.99", "0.999"):
        value = shown[("p_send_seconds", (("quantile", quantile), topic))]
        assert 0.5 <= value <= 0.6


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_any_label_value_survives_the_text_form(value: str) -> None:
    metrics = Metrics("p")
    metrics.counter("c", label=value).add(2)
    families = list(text_string_to_metric_families(render([metrics]).decode()))
    assert [sample.value for family in families for sample in family.samples] == [2]


def test_parts_with_different_prefixes_are_shown_side_by_side() -> None:
    left, right = Metrics("left"), Metrics("right")
    left.counter("c").add(1)
    right.counter("c").add(2)
    assert samples(left, right) == {("left_c_total", ()): 1, ("right_c_total", ()): 2}


def test_forgetting_a_topic_drops_what_carries_its_label_and_nothing_else() -> None:
    metrics = Metrics("p")
    for topic in ("a.b", "a.c"):
        metrics.counter("c", topic=topic, group="a").add()
        metrics.timer("t", topic=topic).observe(1)
        metrics.gauge("g", lambda: 1, topic=topic)
    metrics.counter("all").add()
    metrics.forget(topic="a.b")
    labels = {dict(key).get("topic") for _name, key in samples(metrics)}
    assert labels == {"a.c", None}


@given(st.lists(durations, min_size=1, max_size=200), st.floats(0.01, 1))
def test_a_quantile_is_an_upper_bound_at_most_20_percent_too_high(
    observed: list[float], quantile: float
) -> None:
    timer = Timer()
    for duration in observed:
        timer.observe(duration)
    exact = sorted(observed)[max(0, math.ceil(quantile * len(observed)) - 1)]
    assert exact * (1 - 1e-9) <= timer.quantiles_s([quantile], 0.0)[0] <= exact * 1.2 * (1 + 1e-9)
    assert timer.count == len(observed)
    assert timer.sum_s == pytest.approx(sum(observed))


def test_quantiles_are_of_the_last_minute_and_not_since_the_start() -> None:
    timer = Timer()
    timer.observe(9.0, 1_000)
    shown = []
    for now_s in range(0, 136, 15):
        timer.observe(0.01, 10)
        shown.append(timer.quantiles_s([0.99], now_s)[0])
    assert all(each >= 9.0 for each in shown[:4])
    assert all(0.01 <= each <= 0.012 for each in shown[4:])
    # Nothing came since.
    assert not math.isnan(timer.quantiles_s([0.5], 150.0)[0])
    assert math.isnan(timer.quantiles_s([0.5], 250.0)[0])
    assert timer.count == 1_100
    assert timer.sum_s == pytest.approx(9_001.0)


def test_a_table_of_gauges_has_a_line_for_each_row_of_the_moment() -> None:
    metrics = Metrics("p")
    rows = {"a": 1.0, "b": 2.0}
    metrics.gauges("lag", lambda: [({"name": name}, lag) for name, lag in rows.items()])
    assert samples(metrics) == {
        ("p_lag", (("name", "a"),)): 1,
        ("p_lag", (("name", "b"),)): 2,
    }
    del rows["a"]
    assert samples(metrics) == {("p_lag", (("name", "b"),)): 2}


def many_topics(count: int) -> Metrics:
    metrics = Metrics("hermes_frontend")
    metrics.gauge("inflight_requests", lambda: 3)
    for number in range(count):
        labels = {"group": "shop", "topic": f'odd "{number}" \\ name'}
        metrics.counter("topic_published", **labels).add(number)
        metrics.timer("topic_latency", **labels).observe(number / 100)
    return metrics


@pytest.mark.parametrize("count", [0, 51, 173])
async def test_metrics_rendered_in_turns_are_the_same(count: int) -> None:
    parts = [many_topics(count), Metrics("hermes_consumers")]
    assert await render_in_turns(parts) == render(parts)


async def test_a_topic_that_goes_while_it_is_rendered_does_no_harm() -> None:
    metrics = many_topics(300)

    async def delete() -> None:
        for number in range(300):
            metrics.forget(topic=f'odd "{number}" \\ name')
            metrics.counter(f"late_{number}").add()
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(delete)
        page = await render_in_turns([metrics])
        nursery.cancel_scope.cancel()
    assert list(text_string_to_metric_families(page.decode()))
