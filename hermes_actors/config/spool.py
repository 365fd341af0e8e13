"""The spool: where a node keeps what no log acknowledged in time."""

from msgspec import Struct


class SpoolConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The disk that keeps messages until a log takes them. `directory` holds a folder for each
    node, `<dc>.<node>`.
    """

    enabled: bool = True
    directory: str = "hermes-spool"
    disk_bytes_max: int = 1_073_741_824
    entries_max: int = 1_000_000
    queued_bytes_max: int = 67_108_864
    segment_bytes_max: int = 16_777_216
    age_max_ms: int = 604_800_000
    reserve_ms: int = 15
    write_timeout_ms: int = 1_000
    late_acknowledgement_wait_ms: int = 10_000
    replay_backoff_max_ms: int = 30_000
    for_fallback_topics: bool = False
