"""A subscription as Hermes shows it; field names, defaults and JSON shape are fixed by the wire
format.
"""

from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from hermes_actors.model.oauth import OAuthProvider
from hermes_actors.model.redaction import HIDDEN, redacted, without_user_info
from hermes_actors.model.topic import ContentType, Owner, Topic


class SubscriptionState(StrEnum):
    """PENDING until a consumer has started; SUSPENDED by an operator, an owner or the broker."""

    PENDING = "PENDING"
    ACTIVE = "ACTIVE"
    SUSPENDED = "SUSPENDED"


class DeliveryType(StrEnum):
    """One message per request, batches, or messages that clients fetch and acknowledge."""

    SERIAL = "SERIAL"
    BATCH = "BATCH"
    PULL = "PULL"


class DeliveryMode(StrEnum):
    """One recipient, or every resolved recipient."""

    ANYCAST = "ANYCAST"
    BROADCAST = "BROADCAST"


class TrackingMode(StrEnum):
    """Which deliveries are tracked."""

    ALL = "trackingAll"
    DISCARDED_ONLY = "discardedOnly"
    OFF = "trackingOff"


class TtlFrom(StrEnum):
    """When a message's time to live begins: when it is read here, or when it was published."""

    READING = "READING"
    PUBLICATION = "PUBLICATION"


class BatchBody(StrEnum):
    """The elements of a batch's JSON array: Hermes' envelopes, or the bare messages."""

    ENVELOPES = "ENVELOPES"
    MESSAGES = "MESSAGES"


class Tombstones(StrEnum):
    """Whether records without a value, which other producers wrote to Kafka, are pushed."""

    DELIVER = "deliver"
    SKIP = "skip"


class SerialPolicy(Struct, frozen=True, rename="camel", kw_only=True):
    """How messages are pushed one by one, or pulled. `rate` is in messages a second, for each
    datacentre.

    `message_ttl` is in seconds, other fields without a unit in their names in milliseconds; the
    names are fixed by the wire format. Fields from `ordered` on are not in Hermes. `retry_on` and
    `discard_on` are HTTP statuses that are always retried, or always given up, whatever the other
    rules say.

    Pulled messages have no rate and no time-outs of requests. Instead a client has
    `ack_deadline_seconds` to acknowledge a message.
    """

    rate: int = 400
    message_ttl: int = 3_600
    message_backoff: int = 100
    request_timeout: int = 1_000
    socket_timeout: int = 0
    sending_delay: int = 0
    backoff_multiplier: float = 1.0
    backoff_max_interval_in_sec: int = 600
    inflight_size: int | None = None
    retry_client_errors: bool = False
    ordered: bool = False
    ttl_from: TtlFrom = TtlFrom.READING
    attempts_max: int | None = None
    retry_on: list[int] = field(default_factory=list)
    discard_on: list[int] = field(default_factory=list)
    ack_deadline_seconds: int = 30


class BatchPolicy(Struct, frozen=True, rename="camel", kw_only=True):
    """How messages are pushed in batches. `message_ttl` is in seconds, `batch_volume` in bytes.

    Fields from `message_rate` on are not in Hermes; it is in messages a second, None for no limit.
    """

    message_ttl: int = 60
    message_backoff: int = 500
    request_timeout: int = 30_000
    batch_size: int = 100
    batch_time: int = 30_000
    batch_volume: int = 64_000
    retry_client_errors: bool = False
    message_rate: int | None = None
    body: BatchBody = BatchBody.ENVELOPES
    backoff_multiplier: float = 1.0
    backoff_max_interval_in_sec: int = 600
    attempts_max: int | None = None
    retry_on: list[int] = field(default_factory=list)
    discard_on: list[int] = field(default_factory=list)


class Header(Struct, frozen=True):
    """A fixed request header of a subscription."""

    name: str
    value: str

    def __repr__(self) -> str:
        return redacted(self, value=HIDDEN)


class Filter(Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """One condition on a message; all conditions of a subscription must hold."""

    type: str
    matcher: str
    path: str | None = None
    header: str | None = None
    matching_strategy: str = "all"


class OAuthPolicy(Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """How to get a token for the endpoint. `password` is a secret."""

    grant_type: str
    provider_name: str
    scope: str | None = None
    username: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return redacted(self) if self.password is None else redacted(self, password=HIDDEN)


class SigningPolicy(Struct, frozen=True, rename="camel"):
    """Requests are signed according to Standard Webhooks: once with each secret, newest first.

    `signing_secrets` says how a secret is written. While keys are rotated there are two.
    """

    secrets: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"SigningPolicy({len(self.secrets)} secrets)"


class MonitoringDetails(Struct, frozen=True):
    """How important it is when the subscription is unhealthy."""

    severity: str = "NON_IMPORTANT"
    reaction: str = ""


class MessageProcessingMetrics(Struct, frozen=True, rename="camel"):
    """An optional histogram of processing times."""

    enabled: bool = False
    thresholds_milliseconds: list[int] = field(default_factory=list)


class MetricsConfig(Struct, frozen=True, rename="camel"):
    """The optional metrics of a subscription."""

    message_processing: MessageProcessingMetrics = field(default_factory=MessageProcessingMetrics)


class Subscription(Struct, frozen=True, rename="camel", kw_only=True):
    """A subscription. `created_at` and `modified_at` are epoch seconds, set by the broker.

    The last five fields are not in Hermes. They are shown only if they differ from their defaults.
    """

    topic_name: str
    name: str
    endpoint: str
    description: str
    owner: Owner
    state: SubscriptionState = SubscriptionState.PENDING
    delivery_type: DeliveryType = DeliveryType.SERIAL
    subscription_policy: SerialPolicy | BatchPolicy = field(default_factory=SerialPolicy)
    mode: DeliveryMode = DeliveryMode.ANYCAST
    content_type: ContentType = ContentType.JSON
    tracking_enabled: bool = False
    tracking_mode: TrackingMode = TrackingMode.OFF
    monitoring_details: MonitoringDetails = field(default_factory=MonitoringDetails)
    filters: list[Filter] = field(default_factory=list)
    headers: list[Header] = field(default_factory=list)
    endpoint_address_resolver_metadata: dict[str, Any] = field(default_factory=dict)
    o_auth_policy: OAuthPolicy | None = field(default=None, name="oAuthPolicy")
    http2_enabled: bool = False
    profiling_enabled: bool = False
    profiling_threshold_ms: int = 0
    subscription_identity_headers_enabled: bool = False
    auto_delete_with_topic_enabled: bool = False
    metrics_config: MetricsConfig = field(default_factory=MetricsConfig)
    created_at: float = 0.0
    modified_at: float = 0.0
    dead_letters_enabled: bool = True
    signing: SigningPolicy | None = None
    cloud_events_enabled: bool = False
    tombstones: Tombstones = Tombstones.DELIVER
    labels: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return redacted(
            self,
            endpoint=repr(without_user_info(self.endpoint)),
            endpoint_address_resolver_metadata=repr(list(self.endpoint_address_resolver_metadata)),
        )


BEYOND_HERMES: dict[type[Struct], tuple[str, ...]] = {
    SerialPolicy: (
        "ordered",
        "ttl_from",
        "attempts_max",
        "retry_on",
        "discard_on",
        "ack_deadline_seconds",
    ),
    BatchPolicy: (
        "message_rate",
        "body",
        "backoff_multiplier",
        "backoff_max_interval_in_sec",
        "attempts_max",
        "retry_on",
        "discard_on",
    ),
    Subscription: (
        "dead_letters_enabled",
        "signing",
        "cloud_events_enabled",
        "tombstones",
        "labels",
    ),
    Topic: ("durability", "memory_full", "labels"),
    OAuthProvider: ("labels",),
}
"""Fields that Hermes does not have; clients see them only if they are used."""
