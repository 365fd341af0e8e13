"""The facts that are known of one message, each a bit, and the fate that follows. Pure.

The bits of several rows of a message are joined by `or`, so one aggregation gathers everything.
"""

from collections.abc import Iterator
from enum import IntFlag, StrEnum

from hermes_actors.model.message import Via

WAYS = (*(via.value for via in Via), "unknown")
"""The ways into a log, by number; the last one is that of records which say none that is known."""

DATACENTRES_MAX = 9
"""The most datacentres whose places fit into 63 bits."""

_PLACES_FROM = 16


class Fact(IntFlag):
    """A fact about a message beside its places: bits 0 to 15. A place, one datacentre's log
    entered by one way, is a bit from 16 on.
    """

    ACKNOWLEDGED = 1
    """Answered with 201: stored."""
    KEPT = 2
    """Answered with 202: in a node's spool, to be stored later."""
    YOUNG = 4
    """Answered less than a minute before the snapshot."""
    BEFORE_RETENTION = 8
    """Answered so early, or at a time so unknown, that retention may have taken the record."""
    UNSETTLED = 16
    """Stored, and not settled for at least one subscription."""
    DEAD_LETTERED = 32
    """An open dead letter holds the message."""
    EXPECTED = 128
    """Answered with 201 at a time that is neither too young nor too old: it must be stored,
    whatever else was said of it at other times.
    """


class Fate(StrEnum):
    """The fate of a message, by all that is known."""

    STORED = "stored"
    """In the log of at least one datacentre."""
    LOST = "lost"
    """Acknowledged, and in no log, although each log still holds its time."""
    PENDING = "pending"
    """Acknowledged just before the snapshot, and in no log: another snapshot will tell."""
    KEPT = "kept"
    """Answered with 202 and in no log: in a spool still, or lost with it."""
    EXPIRED = "expired"
    """Acknowledged, and in no log; retention may have taken it."""
    GIVEN_UP = "given-up"
    """In no log any more; an open dead letter holds it."""


UNKNOWN_FATES = (Fate.PENDING, Fate.KEPT, Fate.EXPIRED)
"""Those of which nobody can say now whether the message is lost."""

AGAIN = "again"
"""The cause of a copy that came by the same way as another: published or replayed once more."""


def place(datacentre: int, way: int) -> int:
    """The bit of a record in the log of that datacentre, by number, that came by `WAYS[way]`."""
    assert 0 <= datacentre < DATACENTRES_MAX, "no bit is left"
    assert 0 <= way < len(WAYS), "the ways are few"
    return 1 << (_PLACES_FROM + datacentre * len(WAYS) + way)


def places_of(flags: int) -> Iterator[tuple[int, str]]:
    """The number of the datacentre and the way of each place."""
    places = flags >> _PLACES_FROM
    while places:
        number = (places & -places).bit_length() - 1
        datacentre, way = divmod(number, len(WAYS))
        yield datacentre, WAYS[way]
        places &= places - 1


def fate_of(flags: int) -> Fate:
    """The fate that these facts give. A message that only 202 was said of is never called lost."""
    if flags >> _PLACES_FROM:
        return Fate.STORED
    if flags & Fact.DEAD_LETTERED:
        return Fate.GIVEN_UP
    if flags & Fact.EXPECTED:
        return Fate.LOST
    if flags & Fact.YOUNG:
        return Fate.PENDING
    # What was answered with 201 is expected, young, or before retention.
    return Fate.EXPIRED if flags & Fact.BEFORE_RETENTION else Fate.KEPT


def causes_of(flags: int, copies: int) -> tuple[str, ...]:
    """Why there is more than one copy: each way by which a further one came, or `again`.

    The first copy is the local one, else that of the way which comes first in `WAYS`. Copies of
    one way in two datacentres are `again` too: a publisher sent the message to both.
    """
    ways = sorted(WAYS.index(way) for _, way in places_of(flags))
    if copies <= 1 or not ways:
        return ()
    distinct = sorted(set(ways))
    further = [WAYS[way] for way in distinct[1:]]
    is_repeated = copies > len(ways) or len(ways) > len(distinct)
    return (*further, AGAIN) if is_repeated else tuple(further)
