"""What delivery does beside pushing: what becomes of messages that are given up."""

from msgspec import Struct


class DeadLettersConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Dead letters. A group's topic is made with `partitions` when its first letter comes."""

    enabled: bool = True
    retention_ms: int = 604_800_000
    partitions: int = 4
