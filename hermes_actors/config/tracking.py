"""Tracking: the events that wait for the log, and the index that management searches."""

from msgspec import Struct


class TrackingConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`events_max` wait for each datacentre's log; more are dropped and counted. `index_directory`
    holds a folder for each management node, `<dc>.<node>`; "": the index is in memory, and made
    anew from the logs at each start.
    """

    events_max: int = 20_000
    index_directory: str = ""
    index_bytes_max: int = 1_073_741_824
