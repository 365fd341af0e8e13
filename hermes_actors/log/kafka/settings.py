"""A topic's settings as Kafka's configuration and back, exactly. Pure."""

from collections.abc import Mapping

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Int8, Int16, Int32, Schema, String

from hermes_actors.log.base import TopicSettings

BATCH_OVERHEAD_BYTES = 4_096
"""The bytes of Kafka beside a record's `size_bytes`: `max.message.bytes` bounds a batch, with its
61 bytes of header, a record's about 30 and a few for each of its headers."""

SETTING_NAMES = ("retention.ms", "max.message.bytes", "message.timestamp.type")
"""The settings that `settings_of` reads; `configs_of` also sets what follows from these."""

LOSING_NAMES = ("cleanup.policy", "retention.bytes")
"""The settings that `losses_of` reads beside these."""

_SEGMENTS = 4
_SEGMENT_MS_MIN = 60_000
_SEGMENT_MS_MAX = 604_800_000

_TOPIC = 2
_SET = 0
_INT32_MAX = 2**31 - 1


def configs_of(settings: TopicSettings) -> dict[str, str]:
    """The topic's configuration. Raises ValueError for a limit above Kafka's own.

    Kafka deletes whole segments, and by itself begins another one after a week or 1 GiB only: a
    quarter of the retention keeps what has expired for no longer than about that much more. What is
    kept for ever is so whatever size the cluster bounds its other topics to, and nothing is
    compacted whatever the cluster does with its other topics: messages of one key are all messages.
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
        "segment.ms": str(_SEGMENT_MS_MAX),
    }
    if settings.retention_ms is None:
        configs["retention.bytes"] = "-1"
    else:
        segment_ms = max(settings.retention_ms // _SEGMENTS, _SEGMENT_MS_MIN)
        configs["segment.ms"] = str(min(segment_ms, _SEGMENT_MS_MAX))
    return configs


def changed_configs(old: TopicSettings, new: TopicSettings) -> dict[str, str]:
    """Give the configs to set for `old` to become `new`, and no others."""
    before = configs_of(old)
    return {name: text for name, text in configs_of(new).items() if before.get(name) != text}


def settings_of(partitions: int, configs: Mapping[str, str]) -> TopicSettings:
    """The settings that `configs` show, also of a topic that something else created."""
    retention_ms = int(configs["retention.ms"])
    return TopicSettings(
        partitions=partitions,
        retention_ms=None if retention_ms < 0 else retention_ms,
        record_bytes_max=max(1, int(configs["max.message.bytes"]) - BATCH_OVERHEAD_BYTES),
        log_append_time=configs["message.timestamp.type"] == "LogAppendTime",
    )


def losses_of(configs: Mapping[str, str]) -> dict[str, str]:
    """Give the configs to set so that nothing is lost that is to be kept; {} for none."""
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
    """The request that changes only what it names; aiokafka knows only the older, which resets the
    rest.
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
    """The request that sets these of a topic's configs and leaves the others alone."""
    return _IncrementalAlterConfigs(topic, configs)
