"""The settings for publishing while the local log is unavailable: the spool, and fallback to other
datacentres.
"""

import typing

from msgspec import Struct, field


class SpoolConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The store on disk for messages that no log has accepted. `directory` has a folder for each
    node, `<dc>.<node>`.
    """

    enabled: bool = True
    directory: str = "hermes-spool"
    disk_bytes_max: int = 1_073_741_824
    entries_max: int = 1_000_000
    age_max_ms: int = 604_800_000
    reserve_ms: int = 15
    for_fallback_topics: bool = False


class FallbackConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """When and how much is sent to another datacentre. `remotes` are tried in this order; if it is
    empty, all other datacentres in alphabetical order. `speculative_send_delay_ms` has Hermes' name
    and default.
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
