"""Failures of a source."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from hermes_actors.errors import ErrorCode, HermesError


class SourceFailed(HermesError):
    """A log does not hold a snapshot's records, or cannot be read; the message says what helps."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCode.OTHER)

    def __reduce__(self) -> tuple[type["SourceFailed"], tuple[str]]:
        return SourceFailed, (self.message,)

    def __str__(self) -> str:
        return self.message


_SAID = re.compile(r"(?:SourceFailed|LaunchFailed): ([^\n]+)")
_SPARK_SAID = re.compile(r"(\[[A-Z][A-Z0-9_.]+\] [^\n]+)")

_KAFKA_SAID = re.compile(
    r"offset \[(?P<start>\d+), (?P<end>\d+)\) for topic partition (?P<place>\S+)"
)
_JAVA_SAID = re.compile(r"^An error occurred while calling \S+\n: ")


@contextmanager
def source_failures() -> Iterator[None]:
    """Convert any Spark error in the block to one SourceFailed with the source's own message."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise SourceFailed(said_by(str(error))) from error


def said_by(text: str) -> str:
    """One sentence that says what is wrong, from the text of a Spark error."""
    # A worker's error comes as text, inside the stack traces of two languages.
    said = _SAID.search(text)
    if said is not None:
        return said[1].removesuffix(" SQLSTATE: P0001")
    gone = _KAFKA_SAID.search(text)
    if gone is not None:
        return (
            f"{gone['place']}: Kafka no longer holds all of the offsets {gone['start']} to "
            f"{int(gone['end']) - 1} that the snapshot names; take a new one, and read the "
            "removed records from the archive"
        )
    # The first cause says what was done, the last one why it failed.
    causes = _SPARK_SAID.findall(text) or [_JAVA_SAID.sub("", text).strip().partition("\n")[0]]
    return f"Spark: {': '.join(dict.fromkeys((causes[0], causes[-1])))}"
