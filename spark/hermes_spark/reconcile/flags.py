"""The facts about one message as bits, and the fate that follows from them. Pure.

The bits of a message's rows are combined by `or`, so one aggregation gathers everything.
"""

from collections.abc import Iterator
from enum import IntFlag, StrEnum

from hermes_actors.model.message import Via

WAYS = (*(via.value for via in Via), "unknown")
"""The routes into a log, by number; the last one is for records with no known route."""

DATACENTRES_MAX = 9
"""Maximum number of datacentres whose places fit into 63 bits."""

_PLACES_FROM = 16


class Fact(IntFlag):
    """A fact about a message: bits 0 to 15. Places follow from bit 16: one for each datacentre's
    log and route.
    """

    ACKNOWLEDGED = 1
    """Answered with 201: stored."""
    KEPT = 2
    """Answered 202: spooled, to be stored later."""
    YOUNG = 4
    """Answered less than a minute before the snapshot."""
    BEFORE_RETENTION = 8
    """Answered so long ago, or at an unknown time, that retention may have removed the record."""
    UNSETTLED = 16
    """Stored, and not settled by at least one subscription."""
    DEAD_LETTERED = 32
    """In an open dead letter."""
    EXPECTED = 128
    """Answered 201 at a time neither too recent nor too old: it must be stored, whatever was
    answered at other times.
    """


class Fate(StrEnum):
    """The fate of a message, by all facts."""

    STORED = "stored"
    """In the log of at least one datacentre."""
    LOST = "lost"
    """Acknowledged and in no log, although retention cannot have removed it."""
    PENDING = "pending"
    """Acknowledged just before the snapshot and in no log: a later snapshot will tell."""
    KEPT = "kept"
    """Answered 202 and in no log: still in a spool, or lost with it."""
    EXPIRED = "expired"
    """Acknowledged and in no log; retention may have removed it."""
    GIVEN_UP = "given-up"
    """In no log any more; an open dead letter has it."""


UNKNOWN_FATES = (Fate.PENDING, Fate.KEPT, Fate.EXPIRED)
"""Fates with which it is unknown whether the message is lost."""

AGAIN = "again"
"""The cause of a copy with the same route as another: published or replayed again."""


def place(datacentre: int, way: int) -> int:
    """The bit of a record in the log of that datacentre, by number, with the route `WAYS[way]`."""
    assert 0 <= datacentre < DATACENTRES_MAX, "no bit is left"
    assert 0 <= way < len(WAYS), "the ways are few"
    return 1 << (_PLACES_FROM + datacentre * len(WAYS) + way)


def places_of(flags: int) -> Iterator[tuple[int, str]]:
    """The datacentre's number and the route of each place."""
    places = flags >> _PLACES_FROM
    while places:
        number = (places & -places).bit_length() - 1
        datacentre, way = divmod(number, len(WAYS))
        yield datacentre, WAYS[way]
        places &= places - 1


def fate_of(flags: int) -> Fate:
    """The fate that these facts give. A message that was only ever answered 202 is never called
    lost.
    """
    if flags >> _PLACES_FROM:
        return Fate.STORED
    if flags & Fact.DEAD_LETTERED:
        return Fate.GIVEN_UP
    if flags & Fact.EXPECTED:
        return Fate.LOST
    if flags & Fact.YOUNG:
        return Fate.PENDING
    # A message answered 201 is expected, young, or before retention.
    return Fate.EXPIRED if flags & Fact.BEFORE_RETENTION else Fate.KEPT


def causes_of(flags: int, copies: int) -> tuple[str, ...]:
    """Why there is more than one copy: the route of each further one, or `again`.

    The first copy is the local one, or else the first route in `WAYS`. Copies with the same route
    in two datacentres are `again`, too, because a publisher sent the message to both.
    """
    ways = sorted(WAYS.index(way) for _, way in places_of(flags))
    if copies <= 1 or not ways:
        return ()
    distinct = sorted(set(ways))
    further = [WAYS[way] for way in distinct[1:]]
    is_repeated = copies > len(ways) or len(ways) > len(distinct)
    return (*further, AGAIN) if is_repeated else tuple(further)
