"""A topic's settings survive the way through Kafka's configuration."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.log.base import TopicSettings
from hermes_actors.log.kafka.settings import (
    BATCH_OVERHEAD_BYTES,
    SETTING_NAMES,
    configs_of,
    settings_of,
)

topic_settings = st.builds(
    TopicSettings,
    partitions=st.integers(1, 1_000),
    retention_ms=st.none() | st.integers(0, 2**62),
    record_bytes_max=st.integers(1, 2**31 - 1 - BATCH_OVERHEAD_BYTES),
    log_append_time=st.booleans(),
)


@given(settings=topic_settings)
def test_settings_come_back_exactly(settings):
    configs = configs_of(settings)
    assert tuple(configs) == SETTING_NAMES
    assert settings_of(settings.partitions, configs) == settings


def test_a_limit_above_kafkas_is_refused_by_its_name():
    with pytest.raises(ValueError, match="record_bytes_max is at most 2147479551"):
        configs_of(TopicSettings(record_bytes_max=2**31 - BATCH_OVERHEAD_BYTES))


def test_a_topic_of_somebody_else_is_described_all_the_same():
    configs = {
        "retention.ms": "604800000",
        "max.message.bytes": "100",
        "message.timestamp.type": "CreateTime",
    }
    assert settings_of(3, configs) == TopicSettings(3, 604_800_000, 1, False)
