"""The current incarnation of each subscription, from the metadata of all datacentres."""

from collections.abc import Mapping
from typing import Any

from hermes_actors.metadata.commands import METADATA_TOPIC
from hermes_actors.metadata.keys import SUBSCRIPTION, parse_key, subscription_of
from hermes_actors.metadata.state import MetadataState, Register
from hermes_actors.model.record import StoredRecord
from hermes_spark.snapshot import Snapshot
from hermes_spark.sources import stored

_COLUMNS = ("dc", "partition", "offset", "timestamp_ms", "key", "value")


def registered(spark: Any, snapshot: Snapshot) -> dict[str, int | None]:
    """The incarnation of each subscription in the snapshot's metadata, by `group.topic$name`; None
    for one that was deleted and not created again.
    """
    if not any(METADATA_TOPIC in each.topics for each in snapshot.datacentres.values()):
        return {}
    rows = stored(spark, snapshot, topics=[METADATA_TOPIC], columns=_COLUMNS)
    states: dict[str, MetadataState] = {}
    for row in rows.orderBy("dc", "partition", "offset").toLocalIterator():
        key = None if row.key is None else bytes(row.key)
        record = StoredRecord(
            row.partition, row.offset, row.timestamp_ms, key, bytes(row.value or b""), ()
        )
        states.setdefault(row.dc, MetadataState()).fold(record)
    newest: dict[str, Register] = {}
    for state in states.values():
        for register in state.registers.values():
            # A change that one datacentre has not received yet is in another's log.
            if register.supersedes(newest.get(register.key)):
                newest[register.key] = register
    return _incarnations(newest)


def _incarnations(registers: Mapping[str, Register]) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for key, register in registers.items():
        parsed = parse_key(key)
        name = subscription_of(parsed) if parsed.kind == SUBSCRIPTION else None
        if name is not None:
            found[str(name)] = register.incarnation if register.is_alive else None
    return found
