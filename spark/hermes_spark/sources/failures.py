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


@contextmanager
def source_failures() -> Iterator[None]:
    """Whatever Spark raises within is one SourceFailed, with what the source itself has said."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        # A worker's error comes as text, within the traces of two languages.
        text = str(error)
        said = _SAID.search(text)
        message = said[1] if said else text.strip().partition("\n")[0]
        raise SourceFailed(f"Spark: {message}" if said is None else message) from error
