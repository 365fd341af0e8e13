"""The embedded log and the spool in a node's folders, read from outside."""

from collections.abc import Collection, Iterator
from pathlib import Path

from msgspec import Struct

from hermes_actors.cli.doctor.diagnosis import Diagnosis, fine, odd, size_of, span_of, wrong
from hermes_actors.cli.doctor.processes import open_in
from hermes_actors.fallback.spool.reading import SpoolContent
from hermes_actors.log.embedded.schema import APPLICATION_ID, FILE_NAME, LOCK_NAME, SCHEMA_VERSION

LOG, SPOOL = "log", "spool"

_HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\0"


class LogFile(Struct, frozen=True):
    """An embedded log's file: `size_bytes` is None where there is none; `holder` is the process
    that has it, None when none has, and `is_guess` when that process shows this user nothing.
    """

    path: Path
    size_bytes: int | None = None
    is_sqlite: bool = False
    application_id: int = 0
    version: int = 0
    holder: int | None = None
    is_guess: bool = False


def look_at_log(directory: Path) -> LogFile:
    """By its first bytes: SQLite would make files beside it. Blocks; raises OSError."""
    path = directory / FILE_NAME
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER_BYTES)
            size_bytes = path.stat().st_size
    except FileNotFoundError:
        return LogFile(path)
    return LogFile(
        path,
        size_bytes,
        head.startswith(_MAGIC) and len(head) == _HEADER_BYTES,
        int.from_bytes(head[68:72], "big"),
        int.from_bytes(head[60:64], "big"),
        *_holder(directory / LOCK_NAME),
    )


def judge_log(seen: LogFile, node_pids: Collection[int]) -> Diagnosis:
    """Whether a start finds a log that it can use."""
    about = str(seen.path)
    if seen.size_bytes is None:
        return judge_absent(LOG, about, node_pids)
    size = size_of(seen.size_bytes)
    if not seen.is_sqlite or seen.application_id != APPLICATION_ID:
        return wrong(
            LOG, about, f"{size}, but no log of hermes", "move it away, or name another folder"
        )
    if seen.version != SCHEMA_VERSION:
        return wrong(
            LOG,
            about,
            f"its schema has version {seen.version}, this program reads {SCHEMA_VERSION}",
            "use the program that wrote it",
        )
    if seen.holder is None:
        text = f"{size}, no process has it open"
        return _elsewhere(LOG, about, text, node_pids) if node_pids else fine(LOG, about, text)
    if seen.holder in node_pids:
        return fine(LOG, about, f"{size}, open in the node's process {seen.holder}")
    if seen.is_guess:
        text = f"{size}, perhaps open in process {seen.holder}, which this user cannot look at"
        return odd(LOG, about, text, "run this as the node's user")
    return odd(
        LOG,
        about,
        f"{size}, open in process {seen.holder}, which is not seen to be this node",
        "if it is another one, stop it or name another folder: two cannot share it",
    )


def judge_absent(check: str, about: str, node_pids: Collection[int]) -> Diagnosis:
    """Whether a missing folder is made by the first start, or a running node has it elsewhere."""
    if node_pids:
        return _elsewhere(check, about, "not there", node_pids)
    return fine(check, about, "not there yet: a start makes it")


def judge_spool(
    content: SpoolContent, node_pids: Collection[int], now_ms: int
) -> Iterator[Diagnosis]:
    """Whether messages wait, and whether a start finds all that was acknowledged."""
    about = content.folder
    if content.damaged:
        yield wrong(
            SPOOL,
            about,
            f"{content.damaged} damaged places: their messages are lost",
            "restore the folder from a copy; see whether the disk is sound",
        )
    if content.set_aside:
        listed = ", ".join(f"{count} {why}" for why, count in content.set_aside.items())
        yield odd(
            SPOOL,
            about,
            f"set aside: {listed}",
            f"see {about}/set-aside.jsonl, then delete it",
        )
    waits = f"{content.entries} messages wait, {size_of(content.size_bytes)}"
    if content.oldest_ms is not None:
        waits += f", the oldest for {span_of(now_ms - content.oldest_ms)}"
    if node_pids and not content.pid:
        yield _elsewhere(SPOOL, about, f"{waits}, no process has it open", node_pids)
    elif not content.entries:
        yield fine(SPOOL, about, "nothing waits")
    elif content.pid:
        yield odd(SPOOL, about, waits, "the node sends them once its log takes them: see the log")
    else:
        yield odd(
            SPOOL,
            about,
            f"{waits}, and no node runs",
            "start the node, or say 'hermes spool drain'",
        )
    if content.pid and node_pids and content.pid not in map(str, node_pids):
        yield wrong(
            SPOOL,
            about,
            f"in use by process {content.pid}, the node is process {min(node_pids)}",
            "stop the one that is not meant to run",
        )


def _elsewhere(check: str, about: str, seen: str, node_pids: Collection[int]) -> Diagnosis:
    return odd(
        check,
        about,
        f"{seen}, and the node runs as process {min(node_pids)}: it has another folder",
        "run this in the folder where the node was started, with its options and HERMES_… "
        "variables; until then this check tells nothing of it",
    )


def _holder(lock: Path) -> tuple[int | None, bool]:
    """The process whose id the lock's file holds, if it has that file open, and whether that is a
    guess. The lock itself is not tried: a node that starts in that moment would think another one
    has it.
    """
    pid = 0
    try:
        pid = int(lock.read_text(encoding="ascii").strip() or 0)
        open_files = set(open_in(Path(f"/proc/{pid}")))
    except PermissionError:
        return (pid, True) if pid else (None, False)
    except (OSError, ValueError):
        # It has ended, or nobody ever had it.
        return None, False
    has_it = str(lock.absolute()) in open_files or str(lock.resolve()) in open_files
    return (pid if has_it else None), False
