"""A topic as Hermes shows it; field names, defaults and JSON shape are fixed by the wire format."""

from enum import StrEnum

from msgspec import Struct, field


class Ack(StrEnum):
    """How many replicas must hold a message before it is acknowledged. NONE behaves as LEADER."""

    NONE = "NONE"
    LEADER = "LEADER"
    ALL = "ALL"

    @property
    def waits_for_replicas(self) -> bool:
        """True if the leader alone does not suffice."""
        return self is Ack.ALL


class Durability(StrEnum):
    """What a message survives once it is acknowledged: the loss of a replica, what `ack` says, or
    nothing (PERFORMANCE keeps it in memory).
    """

    CONSISTENT = "CONSISTENT"
    EVENTUAL = "EVENTUAL"
    PERFORMANCE = "PERFORMANCE"


class MemoryFull(StrEnum):
    """What happens to a publish if the memory of a PERFORMANCE topic is full: the oldest message
    makes room, or the publisher waits up to its time limit.
    """

    DROP_OLDEST = "DROP_OLDEST"
    WAIT = "WAIT"


COPIES_MIN = 2
"""How many replicas of a CONSISTENT topic hold a message when it is acknowledged."""


class ContentType(StrEnum):
    """The content type that a topic stores, or that a subscription gets."""

    JSON = "JSON"
    AVRO = "AVRO"


class RetentionUnit(StrEnum):
    """Units of a retention time."""

    SECONDS = "SECONDS"
    MINUTES = "MINUTES"
    HOURS = "HOURS"
    DAYS = "DAYS"

    @property
    def milliseconds(self) -> int:
        """The length of one unit in milliseconds."""
        return {"SECONDS": 1_000, "MINUTES": 60_000, "HOURS": 3_600_000, "DAYS": 86_400_000}[
            self.value
        ]


class ChaosMode(StrEnum):
    """Where a chaos experiment applies."""

    DISABLED = "DISABLED"
    GLOBAL = "GLOBAL"
    DATACENTER = "DATACENTER"


class Owner(Struct, frozen=True, rename="camel"):
    """The owner of a topic or a subscription; `source` names the directory that knows `id`."""

    source: str
    id: str


class RetentionTime(Struct, frozen=True, rename="camel"):
    """How long the log keeps a message."""

    duration: int
    retention_unit: RetentionUnit = RetentionUnit.DAYS

    @property
    def milliseconds(self) -> int:
        """The retention in milliseconds."""
        return self.duration * self.retention_unit.milliseconds


class ChaosPolicy(Struct, frozen=True, rename="camel"):
    """One experiment: probability in percent, a range of delays in ms, and whether the append
    fails.
    """

    probability: int = 0
    delay_from: int = 0
    delay_to: int = 0
    complete_with_error: bool = False


class Chaos(Struct, frozen=True, rename="camel", omit_defaults=False):
    """The chaos experiments of a topic. `global_policy` is left out of JSON if there is none."""

    mode: ChaosMode = ChaosMode.DISABLED
    global_policy: ChaosPolicy | None = None
    datacenter_policies: dict[str, ChaosPolicy] = field(default_factory=dict)


class PublishingAuth(Struct, frozen=True, rename="camel"):
    """The publishers that a topic allows. In a given object, a missing boolean means false."""

    publishers: list[str] = field(default_factory=list)
    enabled: bool = False
    unauthenticated_access_enabled: bool = False


class OfflineRetentionTime(Struct, frozen=True, rename="camel"):
    """How long an offline copy is kept, in days."""

    duration: int = 0
    infinite: bool = False


class OfflineStorage(Struct, frozen=True, rename="camel"):
    """Whether an offline copy of the topic is kept."""

    enabled: bool = False
    retention_time: OfflineRetentionTime = field(default_factory=OfflineRetentionTime)


MESSAGE_BYTES_MIN = 1_024
MESSAGE_BYTES_MAX = 2_097_152
MESSAGE_BYTES_DEFAULT = 51_200


class Topic(Struct, frozen=True, rename="camel", kw_only=True):
    """A topic. `created_at` and `modified_at` are epoch seconds, set by the broker.

    `durability`, `memory_full` and `labels` are not in Hermes.
    """

    name: str
    description: str
    owner: Owner
    content_type: ContentType
    retention_time: RetentionTime
    ack: Ack = Ack.LEADER
    max_message_size: int = MESSAGE_BYTES_DEFAULT
    json_to_avro_dry_run: bool = False
    migrated_from_json_type: bool = False
    tracking_enabled: bool = False
    fallback_to_remote_datacenter_enabled: bool = False
    chaos: Chaos = field(default_factory=Chaos)
    auth: PublishingAuth = field(
        default_factory=lambda: PublishingAuth(unauthenticated_access_enabled=True)
    )
    subscribing_restricted: bool = False
    offline_storage: OfflineStorage = field(default_factory=OfflineStorage)
    created_at: float = 0.0
    modified_at: float = 0.0
    durability: Durability = Durability.EVENTUAL
    memory_full: MemoryFull = MemoryFull.DROP_OLDEST
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def is_in_memory(self) -> bool:
        """True if its messages are in memory only."""
        return self.durability is Durability.PERFORMANCE
