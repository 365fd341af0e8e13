"""The journal of a replay, one line per message, so that it can continue after an interruption."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from msgspec import Struct


class Replayed(Struct, frozen=True, rename="camel"):
    """One answer: the status and, if it is no success, the reason. The format is that of a list of
    acknowledged messages, so that a reconciliation can read it.
    """

    topic: str
    message_id: str
    status: int
    sent_ms: int
    only_for: str = ""
    error: str = ""

    @property
    def is_done(self) -> bool:
        """True if stored or spooled."""
        return self.status in (201, 202)


class Journal:
    """The open file. Messages put back by earlier runs are known from the start."""

    def __init__(self, path: Path, since_ms: int = 0) -> None:
        """Messages put back before `since_ms` do not count, because a later look at the logs has
        missed them.

        Raises OSError, ValueError for a file that is not a journal, and BlockingIOError if another
        run has it open.
        """
        self._done: set[tuple[str, str, str]] = set()
        self._since_ms = since_ms
        self._file = path.open("a+b")
        try:
            # A kernel lock, so that a killed run leaves none.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._read(path)
        except BaseException:
            self._file.close()
            raise

    def _read(self, path: Path) -> None:
        self._file.seek(0)
        text = self._file.read()
        # A killed run may have left half a line.
        whole = text.rpartition(b"\n")[0]
        try:
            for each in msgspec.json.Decoder(Replayed).decode_lines(whole):
                self._know(each)
        except msgspec.MsgspecError as error:
            raise ValueError(f"{path} is not a journal of a replay: {error}") from error
        self._file.truncate(len(whole) + 1 if whole else 0)
        self._file.seek(0, os.SEEK_END)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def is_done(self, topic: str, message_id: str, only_for: str) -> bool:
        """True if it was put back already."""
        return (topic, message_id, only_for) in self._done

    def add(self, answer: Replayed) -> None:
        """Append the answer. Raises OSError."""
        self._file.write(msgspec.json.encode(answer) + b"\n")
        self._file.flush()
        self._know(answer)

    def _know(self, answer: Replayed) -> None:
        if answer.is_done and answer.sent_ms >= self._since_ms:
            self._done.add((answer.topic, answer.message_id, answer.only_for))
