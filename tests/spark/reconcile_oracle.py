"""An oracle for reconciliation: plain lists and loops, without the product.

A world is what was written. `stored` has (dc, topic, partition, offset, id, route, at_ms), with id
None for a foreign record. `settled` has, by (topic, subscription), a set of (dc, partition,
offset); `uncommitted` the (dc, partition) about which nothing is known. `listed` has (topic, id,
status, sent_ms); `letters`, by (topic, subscription), the places given up.
"""

from collections import Counter
from dataclasses import dataclass, field

ORDER = ["local", "fallback", "hedge", "spool"]


@dataclass
class World:
    taken_at_ms: int
    stored: list = field(default_factory=list)
    settled: dict = field(default_factory=dict)
    uncommitted: dict = field(default_factory=dict)
    listed: list = field(default_factory=list)
    letters: dict = field(default_factory=dict)
    retained_from_ms: dict = field(default_factory=dict)


def fates(world):
    """By topic, how many listed messages have each fate."""
    stored = {(each[1], each[4]) for each in world.stored}
    given_up = letter_ids(world)
    said = {}
    for topic, message, status, sent_ms in world.listed:
        if status in (201, 202):
            said.setdefault((topic, message), []).append((status, sent_ms))
    found = {}
    for topic, message in said.keys() | (given_up - stored):
        if (topic, message) in stored:
            fate = "stored"
        elif (topic, message) in given_up:
            fate = "given-up"
        else:
            fate = missing(world, topic, said[topic, message])
        found.setdefault(topic, Counter())[fate] += 1
    return found


def missing(world, topic, said):
    limit = world.retained_from_ms.get(topic)
    young = {ms for _, ms in said if ms is not None and ms > world.taken_at_ms - 60_000}
    old = {ms for _, ms in said if limit is not None and (ms is None or ms < limit)}
    if any(status == 201 and ms not in young | old for status, ms in said):
        return "lost"
    return "pending" if young else "expired" if old else "kept"


def letter_ids(world):
    by_place = {each[:4]: each[4] for each in world.stored}
    return {
        (topic, by_place.get((dc, topic, partition, offset), message))
        for (topic, _), places in world.letters.items()
        for dc, partition, offset, message in places
    }


def causes(world):
    """By topic, how many messages have further copies by each cause, and the number of those
    copies.
    """
    copies = {}
    for dc, topic, _, _, message, way, _ in world.stored:
        if message is not None:
            copies.setdefault((topic, message), []).append((dc, way))
    found, surplus = {}, Counter()
    for (topic, _), places in copies.items():
        if len(places) < 2:
            continue
        surplus[topic] += len(places) - 1
        ways = sorted({way for _, way in places}, key=lambda way: [*ORDER, way].index(way))
        named = set(ways[1:])
        # More copies than routes: two of them took the same route.
        if len(places) > len(ways):
            named.add("again")
        for cause in named:
            found.setdefault(topic, Counter())[cause] += 1
    return found, surplus


def unsettled(world):
    """By (topic, subscription), what is stored and not settled."""
    return {
        (topic, name): {
            (dc, partition, offset)
            for dc, own, partition, offset, *_ in world.stored
            if own == topic
            and (dc, partition) not in world.uncommitted.get((topic, name), set())
            and (dc, partition, offset) not in places
        }
        for (topic, name), places in world.settled.items()
    }
