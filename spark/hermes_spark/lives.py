"""Maps a topic in a log to its topic name: a topic that was deleted and created again has a new one
there.
"""

from collections.abc import Collection, Iterable
from typing import Any

from hermes_actors.metadata.keys import parse_log_topic
from hermes_spark.snapshot import Snapshot


def life_of(log_topic: str) -> tuple[str, int]:
    """The topic's name, and when (Unix epoch in ms) its previous incarnation was deleted; 0 for the
    first. `log_topic` is without the namespace. A foreign topic is its own first incarnation.
    """
    found = parse_log_topic(log_topic)
    return (log_topic, 0) if found is None else (str(found[0]), found[1])


def topic_of(column: Any) -> Any:
    """A Spark column with the first part of `life_of`."""
    from pyspark.sql import functions as f

    first = f.regexp_replace(column, r"^(.+\..+)_\.[1-9][0-9]*$", "$1")
    # The pattern costs more than the rest of a row, and nearly no topic is such a one.
    return f.when(f.contains(column, f.lit("_.")), first).otherwise(f.col(column))


def lives(log_topics: Iterable[str], topics: Collection[str]) -> list[str]:
    """The log topics that are an incarnation of one of these topics, sorted."""
    return sorted({each for each in log_topics if life_of(each)[0] in topics})


def lives_in(snapshot: Snapshot, topics: Collection[str]) -> list[str]:
    """The snapshot's log topics, of all datacentres, that are an incarnation of one of these,
    sorted.
    """
    held = (topic for each in snapshot.datacentres.values() for topic in each.topics)
    return lives(held, topics)
