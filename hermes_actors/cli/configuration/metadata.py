"""`hermes metadata`: a backup of everything that management knows, and its restoring."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from hermes_actors.cli.command_line.bodies import text_from_file
from hermes_actors.cli.command_line.failures import CommandFailed, UsageWrong
from hermes_actors.cli.command_line.plain import command_group
from hermes_actors.cli.connection.asking import management, management_command
from hermes_actors.cli.output.render import counted, printable, say

app = command_group("Back up and restore all metadata.")

_FORMAT = "hermes metadata backup 1"
_PIECE_CHARACTERS_MAX = 250_000
_TIMEOUT_S = 300.0
_NAMED_MAX = 5

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="for example cluster.backup")]


@management_command(app, "hermes metadata backup cluster.backup")
def backup(file: FileArgument) -> None:
    """Write all metadata to a new file, secrets included; only you can read the file."""
    lines = _present()
    header = {"format": _FORMAT, "sha256": _digest(lines)}
    try:
        # 0600 from the start, because of the secrets.
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.writelines(f"{each}\n" for each in (json.dumps(header), *lines))
            out.flush()
            os.fsync(handle)
    except OSError as error:
        raise CommandFailed(f"{file}: cannot be written: {error.strerror}") from error
    say(f"wrote {_kinds(lines)} to {file}, which holds secrets")


@management_command(app, "hermes metadata restore cluster.backup")
def restore(
    file: FileArgument,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Restore into a cluster that is not empty; its newer items are kept."
        ),
    ] = False,
) -> None:
    """Restore a backup into an empty cluster, and compare the result with it."""
    lines = _read(file)
    foreign = sorted(_key(each) for each in set(_present()) - set(lines))
    if foreign and not force:
        raise CommandFailed(
            f"nothing was restored: the cluster is not empty. It has {_named(foreign)}, which "
            "the backup lacks or has in another version. With --force the backup's items are "
            "added; items that are newer in the cluster, or exist only there, are kept"
        )
    counts: Counter[str] = Counter()
    for piece in _pieces(lines):
        answer = management().post("/metadata/restore", piece.encode(), timeout_s=_TIMEOUT_S)
        counts.update(json.loads(answer))
    say(f"restored {counts['restored']} of {_kinds(lines)}; {counts['kept']} were there already")
    differing = sorted(_key(each) for each in set(lines) - set(_present()))
    if differing:
        raise CommandFailed(f"the cluster has other versions of {_named(differing)}")
    say("the cluster has everything in the backup, unchanged")


def _present() -> list[str]:
    """The lines of a backup of the cluster as it is now."""
    return sorted(management().get("/metadata/backup").decode().split("\n")[:-1])


def _read(file: str) -> list[str]:
    """The lines of a backup file. Raises UsageWrong if it is not a whole one."""
    first, *lines = text_from_file("the backup", file).rstrip("\n").split("\n")
    try:
        header = json.loads(first)
        is_whole = header["format"] == _FORMAT and header["sha256"] == _digest(lines)
    except (ValueError, KeyError, TypeError):
        is_whole = False
    if not is_whole:
        raise UsageWrong(f"{file} is not a complete backup of 'hermes metadata backup'")
    return lines


def _digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _pieces(lines: Iterable[str]) -> Iterator[str]:
    """Join the lines to requests; a character has at most four bytes."""
    piece: list[str] = []
    size = 0
    for line in lines:
        if piece and size + len(line) > _PIECE_CHARACTERS_MAX:
            yield "\n".join(piece)
            piece, size = [], 0
        piece.append(line)
        size += len(line)
    if piece:
        yield "\n".join(piece)


def _key(line: str) -> str:
    key: Any = json.loads(line)["key"]
    return str(key)


def _kinds(lines: list[str]) -> str:
    """How many registers of which kinds there are."""
    kinds = Counter(_key(each).partition("/")[0] for each in lines)
    told = ", ".join(f"{kinds[each]} {each}" for each in sorted(kinds))
    return f"{counted(len(lines), 'register')} ({told})" if told else "0 registers"


def _named(keys: list[str]) -> str:
    more = f" and {len(keys) - _NAMED_MAX} more" if len(keys) > _NAMED_MAX else ""
    return printable(", ".join(keys[:_NAMED_MAX]) + more)
