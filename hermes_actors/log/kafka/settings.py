"""Converts a topic's settings to Kafka's configuration and back, without loss. Pure."""

from collections.abc import Mapping

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Int8, Int16, Int32, Schema, String

from hermes_actors.log.base import TopicSettings

BATCH_OVERHEAD_BYTES = 4_096
"""Added to the largest `size_bytes`, because `max.message.bytes` limits a batch: its header has 61
bytes, a record has about 30 of overhead, and each of its headers a few."""

SETTING_NAMES = (
    *("retention.ms", "max.message.bytes", "message.timestamp.type"),
    "min.insync.replicas",
)
"""The configs that `settings_of` reads; `configs_of` also sets others that follow from them."""

LOSING_NAMES = ("cleanup.policy", "retention.bytes")
"""The configs that `losses_of` reads in addition."""

_SEGMENTS = 4
_SEGMENT_MS_MIN = 60_000
_SEGMENT_MS_MAX = 604_800_000

_TOPIC = 2
_SET = 0
_INT32_MAX = 2**31 - 1


def configs_of(settings: TopicSettings) -> dict[str, str]:
    """Return the topic's configs. Raises ValueError for a limit above Kafka's own.

    Kafka deletes whole segments, and by default starts a new one after a week or 1 GiB. With
    segments of a quarter of the retention, expired records remain for about that much longer.
    `retention.bytes` and `cleanup.policy` override the cluster's defaults: records that are kept
    for ever must not be deleted by size, and no topic may be compacted, because each message of a
    key counts.
    """
    message_bytes_max = settings.record_bytes_max + BATCH_OVERHEAD_BYTES
    if message_bytes_max > _INT32_MAX:
        raise ValueError(
            f"record_bytes_max is at most {_INT32_MAX - BATCH_OVERHEAD_BYTES} in Kafka, "
            f"not {settings.record_bytes_max}"
        )
    configs = {
        "cleanup.policy": "delete",
        "retention.ms": "-1" if settings.retention_ms is None else str(settings.retention_ms),
        "max.message.bytes": str(message_bytes_max),
        "message.timestamp.type": "LogAppendTime" if settings.log_append_time else "CreateTime",
        "min.insync.replicas": str(settings.copies_min),
        "segment.ms": str(_SEGMENT_MS_MAX),
    }
    if settings.retention_ms is None:
        configs["retention.bytes"] = "-1"
    else:
        segment_ms = max(settings.retention_ms // _SEGMENTS, _SEGMENT_MS_MIN)
        configs["segment.ms"] = str(min(segment_ms, _SEGMENT_MS_MAX))
    return configs


def changed_configs(old: TopicSettings, new: TopicSettings) -> dict[str, str]:
    """Return the configs that differ between `old` and `new`, with their new values."""
    before = configs_of(old)
    return {name: text for name, text in configs_of(new).items() if before.get(name) != text}


def settings_of(partitions: int, configs: Mapping[str, str]) -> TopicSettings:
    """Return the settings in `configs`, also for a topic that was created by others."""
    retention_ms = int(configs["retention.ms"])
    return TopicSettings(
        partitions=partitions,
        retention_ms=None if retention_ms < 0 else retention_ms,
        record_bytes_max=max(1, int(configs["max.message.bytes"]) - BATCH_OVERHEAD_BYTES),
        log_append_time=configs["message.timestamp.type"] == "LogAppendTime",
        copies_min=int(configs["min.insync.replicas"]),
    )


def losses_of(configs: Mapping[str, str]) -> dict[str, str]:
    """Return the configs to correct so that no record is deleted too early; {} if none."""
    right = {"cleanup.policy": "delete"}
    if int(configs["retention.ms"]) < 0:
        right["retention.bytes"] = "-1"
    return {name: text for name, text in right.items() if configs[name] != text}


class _IncrementalAlterConfigsResponse(Response):  # type: ignore[misc]
    API_KEY = 44
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "resources",
            Array(
                ("error_code", Int16),
                ("error_message", String("utf-8")),
                ("resource_type", Int8),
                ("resource_name", String("utf-8")),
            ),
        ),
    )


class _IncrementalAlterConfigsStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 44
    API_VERSION = 0
    RESPONSE_TYPE = _IncrementalAlterConfigsResponse
    SCHEMA = Schema(
        (
            "resources",
            Array(
                ("resource_type", Int8),
                ("resource_name", String("utf-8")),
                (
                    "configs",
                    Array(
                        ("name", String("utf-8")),
                        ("operation", Int8),
                        ("value", String("utf-8")),
                    ),
                ),
            ),
        ),
        ("validate_only", Boolean),
    )


class _IncrementalAlterConfigs(Request[_IncrementalAlterConfigsStruct]):  # type: ignore[misc]
    """The request that changes only the given configs. aiokafka has only the older request, which
    resets all others.
    """

    API_KEY = 44

    def __init__(self, topic: str, configs: Mapping[str, str]) -> None:
        self._topic = topic
        self._configs = configs

    def build(
        self, request_struct_class: type[_IncrementalAlterConfigsStruct]
    ) -> _IncrementalAlterConfigsStruct:
        configs = [(name, _SET, value) for name, value in self._configs.items()]
        return request_struct_class([(_TOPIC, self._topic, configs)], False)


def incremental_alteration(
    topic: str, configs: Mapping[str, str]
) -> Request[_IncrementalAlterConfigsStruct]:
    """Make the request that sets these configs of a topic and keeps the others."""
    return _IncrementalAlterConfigs(topic, configs)
