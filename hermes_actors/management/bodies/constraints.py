"""Validates the fields of topics and subscriptions. A violation is the text `<path> <message>`."""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from hermes_actors.errors import Refused
from hermes_actors.filters.work import COMPILE_CPU_S, problems
from hermes_actors.management.bodies.decoding import fields_of, require_none
from hermes_actors.model.labels import label_violations
from hermes_actors.model.names import (
    NAME_RULE,
    TOPIC_CHARACTERS_MAX,
    SubscriptionName,
    TopicName,
    is_name_part,
    subscription_problem,
)
from hermes_actors.model.oauth import OAuthProvider
from hermes_actors.model.pulling import ACK_DEADLINE_S_MAX
from hermes_actors.model.signing_secrets import signing_violations
from hermes_actors.model.subscription import (
    BatchPolicy,
    DeliveryType,
    Filter,
    SerialPolicy,
    Subscription,
)
from hermes_actors.model.topic import (
    MESSAGE_BYTES_MAX,
    MESSAGE_BYTES_MIN,
    Ack,
    ChaosPolicy,
    ContentType,
    Durability,
    MemoryFull,
    RetentionTime,
    Topic,
)
from hermes_actors.runtime.workers import TooCostly, WorkerPool

THRESHOLDS_MAX = 10
FILTERS_MAX = 100
HEADERS_MAX = 100
BATCH_MESSAGES_MAX = 10_000
BATCH_TIME_MS_MAX = 3_600_000
BATCH_BYTES_MAX = 16_777_216
"""Limited because each node holds whole batches in memory, several at a time."""

INTEGER_MAX = 2**31 - 1
"""The largest value of integer fields in the API, as in Hermes."""

_RETRYING = {
    "message_backoff": (0,),
    "backoff_multiplier": (1, 10),
    "backoff_max_interval_in_sec": (1, 600),
    "attempts_max": (1,),
}
_RANGES: dict[type[Struct], dict[str, tuple[int, ...]]] = {
    OAuthProvider: {
        "token_request_initial_delay": (0, 3_600_000),
        "token_request_max_delay": (0, 3_600_000),
        "request_timeout": (100, 60_000),
        "socket_timeout": (0, 60_000),
    },
    Topic: {"max_message_size": (MESSAGE_BYTES_MIN, MESSAGE_BYTES_MAX)},
    RetentionTime: {"duration": (-INTEGER_MAX,)},
    ChaosPolicy: {"probability": (0, 100), "delay_to": (-INTEGER_MAX,)},
    Subscription: {"profiling_threshold_ms": (0,)},
    SerialPolicy: {
        **_RETRYING,
        "rate": (1,),
        "message_ttl": (0, 7_200),
        "request_timeout": (100, 300_000),
        "socket_timeout": (0, 300_000),
        "sending_delay": (0, 5_000),
        "inflight_size": (1,),
        "ack_deadline_seconds": (1, ACK_DEADLINE_S_MAX),
    },
    BatchPolicy: {
        **_RETRYING,
        "message_ttl": (0,),
        "request_timeout": (1, 300_000),
        "batch_size": (1, BATCH_MESSAGES_MAX),
        "batch_time": (1, BATCH_TIME_MS_MAX),
        "batch_volume": (1, BATCH_BYTES_MAX),
        "message_rate": (1,),
    },
}
"""The smallest and the largest value of each number. The largest is INTEGER_MAX if left out."""

_OF_PUSHES = frozenset(
    ["endpoint", "headers", "o_auth_policy", "http2_enabled", "signing", "cloud_events_enabled"]
)
"""Fields that a pull subscription must not use."""

_NAME_RULE = f'must match "{NAME_RULE}"'
_SEVERITIES = ("CRITICAL", "IMPORTANT", "NON_IMPORTANT")
_GRANT_TYPES = ("clientCredentials", "password")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_CHAOS_DELAYS = (
    "Invalid chaos policy: 'delayFrom' and 'delayTo' must be >= 0, and 'delayFrom' <= 'delayTo'."
)


def require_valid_topic(topic: Topic) -> None:
    """Raises Refused, which lists the topic's invalid fields."""
    require_none(topic_violations(topic))


def require_valid_subscription(
    subscription: Subscription, filter_problems: Sequence[str] = ()
) -> None:
    """Raises Refused, which lists the subscription's invalid fields. `filter_problems`: the result
    of `problems_of` for its filters.
    """
    require_none(subscription_violations(subscription, filter_problems))


async def problems_of(wanted: Sequence[Filter], pool: WorkerPool) -> tuple[str, ...]:
    """The violations in the filters, such as `filters[0].path must …`. A trio coroutine. Raises
    Unavailable.
    """
    try:
        found: tuple[str, ...] = await pool.ask(
            "filters", COMPILE_CPU_S, problems, tuple(wanted[:FILTERS_MAX])
        )
        return found
    except TooCostly as error:
        return (f"filters must take less time to compile: {error.message}",)


def require_new_name(name: SubscriptionName) -> None:
    """Raises Refused if a new subscription may not have this name. Existing ones keep theirs."""
    problem = subscription_problem(name)
    if name.name == "query":
        problem = "must not be 'query': that path is a query of the topic's subscriptions"
    if problem:
        raise Refused(f"Subscription.name {problem}")


def _durability(topic: Topic) -> Iterator[str]:
    durability, ack = topic.durability, topic.ack
    if durability is Durability.CONSISTENT and ack is not Ack.ALL:
        yield f"Topic.ack is {ack.value}, but durability CONSISTENT needs ALL; leave ack out"
    if not topic.is_in_memory and topic.memory_full is MemoryFull.WAIT:
        yield "Topic.memoryFull WAIT needs durability PERFORMANCE"
    if topic.is_in_memory and ack is Ack.ALL:
        yield "Topic.ack is ALL, but durability PERFORMANCE has no replicas; leave ack out"
    if topic.is_in_memory and topic.fallback_to_remote_datacenter_enabled:
        field = "Topic.fallbackToRemoteDatacenterEnabled"
        yield f"{field} must be false with durability PERFORMANCE: messages stay where they are"


def topic_violations(topic: Topic) -> Iterator[str]:
    """Yield the violations in a topic, apart from rules that depend on other objects."""
    if not is_name_part(TopicName.parse(topic.name).name):
        yield f"Topic.name {_NAME_RULE}"
    if len(topic.name) > TOPIC_CHARACTERS_MAX:
        yield f"Topic.name size must be between 1 and {TOPIC_CHARACTERS_MAX}"
    yield from within_ranges("Topic", topic)
    if topic.retention_time.duration < 1:
        yield (
            "Topic.retentionTime.duration must be greater than or equal to 1, in retentionUnit "
            "SECONDS, MINUTES, HOURS or DAYS: with less the topic would keep no acknowledged "
            "message"
        )
    yield from within_ranges("Topic.retentionTime", topic.retention_time)
    yield from label_violations("Topic.labels", topic.labels)
    yield from _durability(topic)
    chaos = topic.chaos
    if chaos.global_policy is not None:
        yield from _chaos("Topic.chaos.globalPolicy", chaos.global_policy)
    for dc, policy in chaos.datacenter_policies.items():
        yield from _chaos(f"Topic.chaos.datacenterPolicies[{dc}]", policy)


def _chaos(path: str, policy: ChaosPolicy) -> Iterator[str]:
    yield from within_ranges(path, policy)
    if not 0 <= policy.delay_from <= policy.delay_to:
        # Without the path, because the text is Hermes' own and conformance tests compare it.
        yield _CHAOS_DELAYS


def subscription_violations(
    subscription: Subscription, filter_problems: Sequence[str] = ()
) -> Iterator[str]:
    """Yield the violations in a subscription, apart from rules that depend on other objects."""
    if not is_name_part(subscription.name):
        yield f"Subscription.name {_NAME_RULE}"
    if len(subscription.name) > TOPIC_CHARACTERS_MAX:
        yield f"Subscription.name size must be between 1 and {TOPIC_CHARACTERS_MAX}"
    policy_path, policy = "Subscription.subscriptionPolicy", subscription.subscription_policy
    yield from within_ranges(policy_path, policy)
    yield from _statuses(policy_path, policy)
    if (
        subscription.delivery_type is DeliveryType.BATCH
        and subscription.content_type is ContentType.AVRO
    ):
        yield "Subscription.contentType must be JSON, because deliveryType is BATCH"
    if subscription.monitoring_details.severity not in _SEVERITIES:
        yield f"Subscription.monitoringDetails.severity must be one of {', '.join(_SEVERITIES)}"
    yield from _pulled(subscription)
    yield from _filters(subscription.filters, filter_problems)
    yield from _headers(subscription)
    yield from _oauth(subscription)
    if subscription.signing is not None:
        yield from signing_violations("Subscription.signing.secrets", subscription.signing.secrets)
    yield from within_ranges("Subscription", subscription)
    yield from label_violations("Subscription.labels", subscription.labels)
    yield from _thresholds(subscription.metrics_config.message_processing.thresholds_milliseconds)


def within_ranges(path: str, value: Struct) -> Iterator[str]:
    """Yield the numbers that are out of range. None is always valid."""
    for each in fields_of(type(value)):
        number = getattr(value, each.name)
        bounds = _RANGES[type(value)].get(each.name)
        if bounds is not None and number is not None:
            yield from _range(f"{path}.{each.encode_name}", number, *bounds)


def _pulled(subscription: Subscription) -> Iterator[str]:
    """Yield the settings of pushes in a pull subscription."""
    if subscription.delivery_type is DeliveryType.PULL:
        for each in fields_of(Subscription):
            if each.name in _OF_PUSHES and getattr(subscription, each.name):
                yield f"Subscription.{each.encode_name} must be left out with deliveryType PULL"


def _statuses(path: str, policy: SerialPolicy | BatchPolicy) -> Iterator[str]:
    for name, statuses in (("retryOn", policy.retry_on), ("discardOn", policy.discard_on)):
        for index, status in enumerate(statuses):
            if not 300 <= status <= 599:
                yield f"{path}.{name}[{index}] must be an HTTP status from 300 to 599"
    for status in sorted({*policy.retry_on} & {*policy.discard_on}):
        yield f"{path}.discardOn must not contain {status}, which is in retryOn"


def _filters(filters: list[Filter], filter_problems: Sequence[str]) -> Iterator[str]:
    if len(filters) > FILTERS_MAX:
        yield f"Subscription.filters size must be between 0 and {FILTERS_MAX}"
        return
    for index, each in enumerate(filters):
        if each.matching_strategy.lower() not in ("all", "any"):
            yield f"Subscription.filters[{index}].matchingStrategy must be all or any"
    yield from (f"Subscription.{problem}" for problem in filter_problems)


def _headers(subscription: Subscription) -> Iterator[str]:
    if len(subscription.headers) > HEADERS_MAX:
        yield f"Subscription.headers size must be between 0 and {HEADERS_MAX}"
    for index, each in enumerate(subscription.headers):
        if not _HEADER_NAME.fullmatch(each.name):
            yield f"Subscription.headers[{index}].name must be an HTTP header name"
        if not _HEADER_VALUE.fullmatch(each.value):
            yield f"Subscription.headers[{index}].value must not hold line breaks or control codes"


def _oauth(subscription: Subscription) -> Iterator[str]:
    policy = subscription.o_auth_policy
    if policy is not None and policy.grant_type not in _GRANT_TYPES:
        yield f"Subscription.oAuthPolicy.grantType must be one of {', '.join(_GRANT_TYPES)}"


def _thresholds(thresholds: list[int]) -> Iterator[str]:
    path = "Subscription.metricsConfig.messageProcessing.thresholdsMilliseconds"
    if len(thresholds) > THRESHOLDS_MAX:
        yield f"{path} size must be between 0 and {THRESHOLDS_MAX}"
    for index, threshold in enumerate(thresholds):
        if threshold <= 0:
            yield f"{path}[{index}].<list element> must be greater than 0"


def _range(path: str, value: float, low: float, high: float = INTEGER_MAX) -> Iterator[str]:
    if value < low:
        yield f"{path} must be greater than or equal to {low}"
    elif value > high:
        yield f"{path} must be less than or equal to {high}"
