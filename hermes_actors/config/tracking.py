"""The settings of tracking."""

from msgspec import Struct


class TrackingConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`events_max`: how many events may be queued for each datacentre's log; more are dropped and
    counted. `index_directory` has a folder for each management node, `<dc>.<node>`; if it is empty,
    the index is in memory, and is rebuilt from the logs at each start.
    """

    events_max: int = 20_000
    index_directory: str = ""
    index_bytes_max: int = 1_073_741_824
