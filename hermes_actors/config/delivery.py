"""What delivery does beside pushing: who gets messages, and what becomes of dead letters."""

from msgspec import Struct


class DeadLettersConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Dead letters. A group's topic is made with `partitions` when its first letter comes."""

    enabled: bool = True
    retention_ms: int = 604_800_000
    partitions: int = 4


class RecipientsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Who gets a message. `resolver` is a plug-in, `module:function`; "" for what is built in. At
    most `addresses_max` for each endpoint, of which `pushes_max` get one message at the same time.
    """

    resolver: str = ""
    addresses_max: int = 100
    pushes_max: int = 20
    dns_ttl_ms: int = 5_000
