"""What keeps a source from giving all that was asked of it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from hermes_actors.errors import ErrorCode, HermesError


class SourceFailed(HermesError):
    """A log does not hold what a snapshot names, or cannot be read; the message says what helps."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCode.OTHER)

    def __reduce__(self) -> tuple[type["SourceFailed"], tuple[str]]:
        return SourceFailed, (self.message,)

    def __str__(self) -> str:
        return self.message


_SAID = re.compile(r"(?:SourceFailed|LaunchFailed): ([^\n]+)")
_SPARK_SAID = re.compile(r"(\[[A-Z][A-Z0-9_.]+\] [^\n]+)")


@contextmanager
def source_failures() -> Iterator[None]:
    """Whatever Spark raises within is one SourceFailed, with what the source itself has said."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        # A worker's error comes as text, within the traces of two languages.
        text = str(error)
        said = _SAID.search(text)
        if said is not None:
            raise SourceFailed(said[1].removesuffix(" SQLSTATE: P0001")) from error
        # What was done when it failed comes first, and why at last.
        causes = _SPARK_SAID.findall(text) or [text.strip().partition("\n")[0]]
        raise SourceFailed(f"Spark: {': '.join(dict.fromkeys((causes[0], causes[-1])))}") from error
