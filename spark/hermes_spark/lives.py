"""Which topic a log's topic belongs to: one that was deleted and made again has a new one there."""

from collections.abc import Collection, Iterable
from typing import Any

from hermes_actors.metadata.keys import parse_log_topic
from hermes_spark.snapshot import Snapshot


def life_of(log_topic: str) -> tuple[str, int]:
    """The topic's own name, and when (Unix epoch in ms) the life before this one was deleted: 0 for
    the first. `log_topic` is without the namespace; one of others is its own first life.
    """
    found = parse_log_topic(log_topic)
    return (log_topic, 0) if found is None else (str(found[0]), found[1])


def topic_of(column: Any) -> Any:
    """A column of Spark with the first part of `life_of`."""
    from pyspark.sql import functions as f

    return f.regexp_replace(column, r"^(.+\..+)_\.[1-9][0-9]*$", "$1")


def lives(log_topics: Iterable[str], topics: Collection[str]) -> list[str]:
    """Give those of the log's topics that are a life of one of these topics, sorted."""
    return sorted({each for each in log_topics if life_of(each)[0] in topics})


def lives_in(snapshot: Snapshot, topics: Collection[str]) -> list[str]:
    """Give the log topics of all datacentres of the snapshot that are a life of one of these,
    sorted.
    """
    held = (topic for each in snapshot.datacentres.values() for topic in each.topics)
    return lives(held, topics)
