"""Opens an embedded log, for one process, and only if no acknowledged record is missing."""

import logging
import os
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

from hermes_actors.errors import StartupError
from hermes_actors.log.embedded.damage import LogDamage, find_damage, refusal, set_aside
from hermes_actors.log.embedded.schema import (
    APPLICATION_ID,
    FILE_ERRORS,
    FILE_NAME,
    LOCK_NAME,
    SCHEMA,
    SCHEMA_VERSION,
)
from hermes_actors.log.embedded.store import Store
from hermes_actors.log.folder import holder_of, sync_folder, take_lock

_logger = logging.getLogger(__name__)

# How much of the write-ahead log is moved into the file at one time: 16 MiB. Every commit waits for
# it meanwhile, so it must take far less than a publish's time limit. Half as much happens so often
# that it determines the 99th percentile (14 ms instead of 7 ms, at 17,000 messages a second of 1
# KiB); four times as much takes 90 ms instead of 25.
_CHECKPOINT_BYTES = 16_000_000
# Of a new file. With SQLite's 4 KiB a message of 1 KiB rewrites four pages on average, because its
# partition is in the middle of the table; with this size hardly more than one.
_PAGE_BYTES = 16_384
_WAL_BYTES_KEPT = 64 * 1024 * 1024


def open_store(directory: Path, *, accepts_damage: bool = False) -> Store:
    """Open or create the log in `directory` for writing.

    Raises StartupError, in one line, if the directory cannot be written, another process has the
    log open, or the file is of another kind. Raises DamageFound if acknowledged messages are
    missing, unless `accepts_damage`: then the rest is opened, and the damaged files are kept.
    """
    file = directory / LOCK_NAME
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = take_lock(file)
    except BlockingIOError as error:
        holder = holder_of(file) or "unknown"
        raise StartupError(
            f"{directory}: the log is open in another process (pid {holder}); stop it, or give "
            "this node its own directory"
        ) from error
    except OSError as error:
        raise StartupError(
            f"{directory}: the log cannot be written there: {error.strerror}; "
            "name a directory that this user can write to"
        ) from error
    try:
        path = directory / FILE_NAME
        try:
            damage = find_damage(path, reads_all=accepts_damage)
        except OSError as error:
            raise StartupError(
                f"{path}: the log cannot be read: {error}; make room if the disk is full, end what "
                "else uses the file, or repair the disk"
            ) from error
        if damage is not None:
            if not accepts_damage:
                raise refusal(path, damage)
            _accept(path, damage)
        return _open_file(path, lock, 0 if damage is None else damage.missing.total())
    except BaseException:
        os.close(lock)
        raise


def _accept(path: Path, damage: LogDamage) -> None:
    """Keep copies of the damaged files, and make the rest usable. Raises StartupError."""
    try:
        kept = set_aside(path, damage)
    except (*FILE_ERRORS, OSError) as error:
        raise StartupError(
            f"{path}: the damaged files could not be kept aside: {error}; make room, and try again"
        ) from error
    names = ", ".join(file.name for file in kept) or "nothing was left to keep"
    _logger.error("%s: accepted as damaged: %s; kept: %s", path, damage.text, names)


def _open_file(path: Path, lock: int, accepted_missing: int) -> Store:
    try:
        if not path.exists():
            _create(path)
        with ExitStack() as unless_opened:
            connection = unless_opened.enter_context(
                closing(
                    sqlite3.connect(
                        path, isolation_level=None, check_same_thread=False, timeout=5.0
                    )
                )
            )
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
            pages = _CHECKPOINT_BYTES // page_bytes
            connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_KEPT}")
            _check(connection, path)
            store = Store(path, lock, connection, accepted_missing=accepted_missing)
            unless_opened.pop_all()
            return store
    except (*FILE_ERRORS, OSError) as error:
        raise StartupError(
            f"{path}: the log cannot be opened: {error}; make room if the disk is full (a start "
            "needs as much as the -wal file has), else restore it from a copy, or move it away to "
            "start with an empty log"
        ) from error


def _create(path: Path) -> None:
    """Create the file under another name and rename it, so that a crash leaves a complete log or
    none.
    """
    begun = path.with_name(f"{path.name}.new")
    begun.unlink(missing_ok=True)
    with closing(sqlite3.connect(begun, isolation_level=None)) as connection:
        connection.executescript(
            f"PRAGMA page_size = {_PAGE_BYTES};"
            f" BEGIN; {SCHEMA} PRAGMA application_id = {APPLICATION_ID};"
            f" PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
        )
    begun.replace(path)
    sync_folder(path.parent)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise StartupError unless the file is a log of this version, with its full size."""
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    if application_id != APPLICATION_ID:
        raise StartupError(f"{path}: this is a SQLite file, but not a log; move it away")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA_VERSION:
        raise StartupError(
            f"{path}: the log has schema version {version}, this program reads {SCHEMA_VERSION}; "
            "use the program that wrote it"
        )
    # When the write-ahead log is empty, the file must have all its pages.
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    size_bytes = path.stat().st_size
    if size_bytes < pages * page_bytes:
        raise StartupError(
            f"{path}: the log is cut short: {size_bytes} of {pages * page_bytes} bytes are left; "
            "restore it from a copy"
        )
