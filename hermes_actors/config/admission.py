"""The settings of what a frontend demands of a message, and what it remembers of one."""

import typing

from msgspec import Struct, field

_UNLIMITED = 9_223_372_036_854_775_807


class ThroughputConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Quotas in bytes of message content a second, averaged over a minute, for each topic on this
    node. `fixed` uses the first limit, `dynamic` the others; all defaults are Hermes': no limit.
    """

    type: typing.Literal["unlimited", "fixed", "dynamic"] = "unlimited"
    fixed_max_bytes_per_s: int = _UNLIMITED
    dynamic_max_bytes_per_s: int = _UNLIMITED
    dynamic_threshold_bytes_per_s: int = _UNLIMITED
    dynamic_desired_bytes_per_s: int = _UNLIMITED
    dynamic_idle_bytes_per_s: float = 0.5
    dynamic_check_interval_ms: int = 30_000
    headers_always: bool = False


class IdempotencyConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """How many of the `Idempotency-Key`s of this process are remembered, and for how long."""

    keys_max: int = 100_000
    window_ms: int = 3_600_000


class PropagationConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Which request headers travel to the subscribers: with no name in `allowed`, every one."""

    enabled: bool = False
    allowed: list[str] = field(default_factory=list)


class PreviewConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The first messages of each topic in each interval, for people who look at it."""

    enabled: bool = False
    messages_max: int = 3
    message_bytes_max: int = 10_240
    total_bytes_max: int = 4_194_304
    interval_ms: int = 30_000
