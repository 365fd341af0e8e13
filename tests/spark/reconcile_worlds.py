"""Random logs of several datacentres, and the same as an oracle's plain lists."""

from pathlib import Path
from random import Random

import msgspec

from hermes_actors.log.base import Commit
from hermes_actors.log.commits import CommitOwner, encode
from hermes_actors.model.dead_letter import Letter, Mark, MarkKind, letter_record, mark_record
from hermes_actors.model.message import Message, to_record
from hermes_actors.model.names import SubscriptionName
from hermes_spark.snapshot import Datacentre, EmbeddedLog, PartitionRange
from hermes_spark.taking import take_snapshot
from tests.spark.reconcile_oracle import World
from tests.spark.stored_scene import T0_MS, commit_embedded, fill_embedded, foreign

TAKEN_AT_MS = T0_MS + 3_600_000
WAYS = ["local", "local", "local", "fallback", "hedge", "spool"]


def made(folder: Path, seed: int):
    """The snapshot, the rows of a list, and the oracle's world of that seed."""
    random = Random(seed)
    world = World(TAKEN_AT_MS)
    dcs = [f"dc{number}" for number in range(1, random.randint(2, 4))]
    topics = [f"shop.t{number}" for number in range(random.randint(1, 3))]
    logs = {dc: {topic: [[], []] for topic in topics} for dc in dcs}
    for topic in topics:
        for number in range(random.randint(20, 80)):
            write(random, world, logs, topic, f"{topic}-{number}")
    commits = {
        (topic, name): settle(random, world, logs, topic, name)
        for topic in topics
        for name in random.sample(["a", "b_c", "d"], random.randint(0, 2))
    }
    letters = {dc: write_letters(random, world, logs[dc], dc) for dc in dcs}
    for dc in dcs:
        fill_embedded(folder / dc, logs[dc] | {"_hermes.dlq.shop": [letters[dc]]})
        for (topic, name), by_dc in commits.items():
            group = str(SubscriptionName.parse(f"{topic}${name}").consumer_group())
            commit_embedded(folder / dc, group, topic, by_dc[dc])
    described = {dc: Datacentre(EmbeddedLog(str(folder / dc))) for dc in dcs}
    snapshot = take_snapshot(described, TAKEN_AT_MS, lambda: None)
    return retained(random, world, snapshot, topics), world


def write(random, world, logs, topic, message):
    """Write one message: stored or not, and listed or not."""
    at_ms = T0_MS + random.randint(0, 3_000_000)
    for _ in range(random.choice([0, 1, 1, 1, 1, 1, 2, 2, 3])):
        dc, partition = random.choice(list(logs)), random.randrange(2)
        way = random.choice(WAYS)
        records = logs[dc][topic][partition]
        if random.random() < 0.03:
            records.append(foreign(b"{}"))
            said = (None, "unknown", records[-1].timestamp_ms)
        else:
            records.append(to_record(Message(message, b"{}", at_ms, None, dc="dc1", via=way)))
            said = (message, way, at_ms)
        world.stored.append((dc, topic, partition, len(records) - 1, *said))
    for _ in range(random.choice([0, 1, 1, 1, 1, 2])):
        sent_ms = random.choice([at_ms, at_ms, None, TAKEN_AT_MS - 59_000])
        world.listed.append((topic, message, random.choice([201, 201, 201, 202, 500]), sent_ms))


def settle(random, world, logs, topic, name):
    """Commits of a subscription by datacentre, with intervals above the position."""
    settled = world.settled[topic, name] = set()
    by_dc = {dc: {} for dc in logs}
    owner = CommitOwner(7, 9, 1, random.choice([0, 2]))
    for dc, topics in logs.items():
        for partition, records in enumerate(topics[topic]):
            end = len(records)
            if random.random() < 0.15:
                world.uncommitted.setdefault((topic, name), set()).add((dc, partition))
                if random.random() < 0.5:
                    # A commit of an earlier incarnation of the subscription.
                    by_dc[dc][partition] = Commit(end, encode(end, (), CommitOwner(7, 8, 5, 0)))
                continue
            position = random.randint(0, end)
            intervals, at = [], position
            while at + 2 < end and random.random() < 0.7:
                start = random.randint(at + 1, end - 1)
                at = random.randint(start + 1, end)
                intervals.append((start, at))
            covered = {
                *range(position),
                *(n for start, stop in intervals for n in range(start, stop)),
            }
            settled |= {(dc, partition, offset) for offset in covered}
            by_dc[dc][partition] = Commit(position, encode(position, intervals, owner))
    return by_dc


def write_letters(random, world, topics, dc):
    """Letters of some settled messages; some are closed, some written twice."""
    records = []
    for (topic, name), settled in sorted(world.settled.items()):
        for where, partition, offset in sorted(settled):
            if where != dc or random.random() < 0.8:
                continue
            original = topics[topic][partition][offset]
            message = dict(original.headers).get("id", b"").decode() or f"{dc}/{partition}/{offset}"
            letter = Letter(
                dc, f"{topic}${name}", 9, topic, partition, offset, original.timestamp_ms, None,
                original.value, original.headers, message, "attempts", "", 3, 500, T0_MS + 5,
            )  # fmt: skip
            entries = [letter]
            if random.random() < 0.3:
                entries.append(msgspec.structs.replace(letter, at_ms=T0_MS + 9, redrives=1))
            is_open = True
            if random.random() < 0.4:
                upto = random.choice([T0_MS + 5, T0_MS + 9])
                is_open = entries[-1].at_ms > upto
                entries.append(Mark(MarkKind.REDRIVEN, (letter.id,), T0_MS + 10, (upto,)))
            if random.random() < 0.2 and not is_open:
                entries.append(msgspec.structs.replace(letter, at_ms=T0_MS + 11, redrives=2))
                is_open = True
            records += [
                mark_record(letter.subscription, entry)
                if isinstance(entry, Mark)
                else letter_record(entry)
                for entry in entries
            ]
            if is_open:
                places = world.letters.setdefault((topic, name), set())
                places.add((dc, partition, offset, message))
    return records


def begins_ms(world, dc, topic, offsets):
    """A minute after the first of these records that was not spooled."""
    held = {each[3]: each[5:] for each in world.stored if each[:3] == (dc, topic, 0)}
    in_time = [at_ms for way, at_ms in map(held.get, offsets) if way != "spool"]
    return in_time[0] + 60_000 if in_time else TAKEN_AT_MS


def retained(random, world, snapshot, topics):
    """The snapshot as if retention had removed the first records of a partition."""
    if random.random() < 0.4:
        return snapshot
    topic, dc = random.choice(topics), random.choice(list(snapshot.datacentres))
    datacentre = snapshot.datacentres[dc]
    first, *others = datacentre.topics[topic]
    start = random.randint(0, first.end)
    gone = {(dc, topic, 0, offset) for offset in range(start)}
    if start:
        world.retained_from_ms[topic] = begins_ms(world, dc, topic, range(start, first.end))
    world.stored = [each for each in world.stored if each[:4] not in gone]
    cut = datacentre.topics | {topic: [PartitionRange(0, start, first.end), *others]}
    return msgspec.structs.replace(
        snapshot,
        datacentres=snapshot.datacentres | {dc: msgspec.structs.replace(datacentre, topics=cut)},
    )
