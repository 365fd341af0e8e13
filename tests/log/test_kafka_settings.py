"""A topic's settings survive the way through Kafka's configuration."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.log.base import TopicSettings
from hermes_actors.log.kafka.settings import (
    BATCH_OVERHEAD_BYTES,
    SETTING_NAMES,
    changed_configs,
    configs_of,
    losses_of,
    settings_of,
)

topic_settings = st.builds(
    TopicSettings,
    partitions=st.integers(1, 1_000),
    retention_ms=st.none() | st.integers(0, 2**62),
    record_bytes_max=st.integers(1, 2**31 - 1 - BATCH_OVERHEAD_BYTES),
    log_append_time=st.booleans(),
    copies_min=st.integers(1, 5),
)


@given(settings=topic_settings)
def test_settings_come_back_exactly(settings):
    configs = configs_of(settings)
    assert set(configs) > set(SETTING_NAMES)
    assert settings_of(settings.partitions, configs) == settings


@pytest.mark.parametrize(
    ("retention_ms", "segment_ms"),
    [
        (0, 60_000),
        (600_000, 150_000),
        (86_400_000, 21_600_000),
        (365 * 86_400_000, 604_800_000),
        (None, 604_800_000),
    ],
)
def test_segments_are_a_fraction_of_the_retention_since_kafka_deletes_whole_ones(
    retention_ms, segment_ms
):
    assert configs_of(TopicSettings(1, retention_ms))["segment.ms"] == str(segment_ms)


def test_what_is_kept_for_ever_has_no_bound_of_size_and_other_topics_keep_the_clusters():
    assert configs_of(TopicSettings(1, None))["retention.bytes"] == "-1"
    assert "retention.bytes" not in configs_of(TopicSettings(1, 60_000))


@given(settings=topic_settings)
def test_no_topic_is_compacted_and_what_is_set_loses_nothing(settings):
    configs = configs_of(settings)
    assert configs["cleanup.policy"] == "delete"
    clusters = {"retention.bytes": "1000", "cleanup.policy": "compact"}
    assert losses_of({**clusters, **configs}) == {}


@pytest.mark.parametrize(
    ("policy", "retention_ms", "retention_bytes", "losses"),
    [
        ("delete", "-1", "-1", {}),
        ("delete", "60000", "1000", {}),
        ("delete", "-1", "1000", {"retention.bytes": "-1"}),
        ("compact", "60000", "-1", {"cleanup.policy": "delete"}),
        ("compact,delete", "-1", "1", {"cleanup.policy": "delete", "retention.bytes": "-1"}),
    ],
)
def test_a_topic_that_loses_messages_is_known_by_its_configuration(
    policy, retention_ms, retention_bytes, losses
):
    configs = {
        "cleanup.policy": policy,
        "retention.ms": retention_ms,
        "retention.bytes": retention_bytes,
    }
    assert losses_of(configs) == losses


@given(old=topic_settings, new=topic_settings)
def test_a_change_sets_what_differs_and_nothing_else(old, new):
    changes = changed_configs(old, new)
    before, after = configs_of(old), configs_of(new)
    assert {**before, **changes}.items() >= after.items()
    assert not any(before.get(name) == text for name, text in changes.items())


def test_a_limit_above_kafkas_is_refused_by_its_name():
    with pytest.raises(ValueError, match="record_bytes_max is at most 2147479551"):
        configs_of(TopicSettings(record_bytes_max=2**31 - BATCH_OVERHEAD_BYTES))


def test_a_topic_of_somebody_else_is_described_all_the_same():
    configs = {
        "retention.ms": "604800000",
        "max.message.bytes": "100",
        "message.timestamp.type": "CreateTime",
        "min.insync.replicas": "1",
    }
    assert settings_of(3, configs) == TopicSettings(3, 604_800_000, 1, False)
