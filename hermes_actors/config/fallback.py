"""Publishing on through other datacentres: for topics with the remote fallback flag."""

import typing

from msgspec import Struct, field


class FallbackConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """When, and how much, is sent to another datacentre. `remotes` are asked in this order; none:
    every other one by name. `speculative_send_delay_ms` is Hermes' name and default.
    """

    remotes: list[str] = field(default_factory=list)
    hedge_mode: typing.Literal["adaptive", "fixed", "off"] = "adaptive"
    speculative_send_delay_ms: int = 250
    hedge_floor_delay_ms: int = 20
    hedge_quantile_percent: int = 99
    hedge_budget_percent: int = 5
    hedge_burst_max: int = 50
    rescue_before_limit_ms: int = 150
    probe_interval_ms: int = 1_000
    losers_max: int = 1_000
    losers_bytes_max: int = 67_108_864
