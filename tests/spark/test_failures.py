"""Errors of Spark are told in one sentence: the cause, not where it was noticed."""

import pytest

from hermes_spark.sources.failures import said_by

KAFKA = """An error occurred while calling o450.parquet.
: org.apache.spark.sql.kafka010.KafkaIllegalStateException: Some data may have been lost because …
topic was processed.
Reason: Could not read records in offset [0, 20) for topic partition ns_shop.orders-0
with consumer group spark-kafka-relation-b6c87ad2-executor.
\tat org.apache.spark.sql.kafka010.KafkaExceptions$.couldNotReadOffsetRange(…)
"""
KAFKA_SAID = (
    "ns_shop.orders-0: Kafka no longer holds all of the offsets 0 to 19 that the snapshot names; "
    "take a new one, and read the removed records from the archive"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[X] raise SourceFailed(\n…SourceFailed: dc1: a.x/0 is gone SQLSTATE: P0001\n…",
            "dc1: a.x/0 is gone",
        ),
        (
            KAFKA,
            KAFKA_SAID,
        ),
        (
            "An error occurred while calling o4.parquet.\n: java.io.IOException: No space\n\tat",
            "Spark: java.io.IOException: No space",
        ),
        ("[TASK_WRITE_FAILED] Task failed. SQL\n…\n[CAST] bad number. SQL", None),
        ("Answer from Java side is empty", "Spark: Answer from Java side is empty"),
    ],
)
def test_the_cause_is_told(text, said):
    if said is None:
        said = "Spark: [TASK_WRITE_FAILED] Task failed. SQL: [CAST] bad number. SQL"
    assert said_by(text) == said


@pytest.mark.spark
def test_whatever_spark_raises_is_a_source_that_failed():
    from py4j.protocol import Py4JNetworkError
    from pyspark.errors import PySparkException

    from hermes_spark.sources.failures import SourceFailed, source_failures

    for error in (PySparkException("why"), Py4JNetworkError("why")):
        with pytest.raises(SourceFailed, match=r"^Spark: .*why"), source_failures():
            raise error
