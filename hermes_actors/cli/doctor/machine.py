"""The files and folders that a configuration names, on this machine. All of it blocks."""

import os
import ssl
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from rich.filesize import decimal

from hermes_actors.cli.doctor import certificates
from hermes_actors.cli.doctor.findings import Finding, Grade, odd, well, wrong
from hermes_actors.config import Config
from hermes_actors.fallback.spool.opening import spool_folder
from hermes_actors.runtime.network_causes import pem_cause
from hermes_actors.security.keyset import parse_key_set
from hermes_actors.security.users import WrongFile, parse_users

FILES, DISK = "files", "disk"

_FREE_BYTES_MIN = 67_108_864
_FREE_SHARE_MIN = 0.05


def file_problems(config: Config, now_ms: int) -> Iterator[str]:
    """A sentence for each file or folder that a node could not use."""
    for each in (*look_at_files(config, now_ms), *look_at_folders(config)):
        if each.grade is Grade.FAIL:
            yield f"{each.about}: {each.seen}; {each.way_out}"


def look_at_files(section: Struct, now_ms: int, path: str = "") -> Iterator[Finding]:
    """A finding for each file that a section of the configuration names."""
    for name in section.__struct_fields__:
        value = getattr(section, name)
        if isinstance(value, Struct):
            yield from look_at_files(value, now_ms, f"{path}{name}.")
        elif isinstance(value, dict):
            for key, entry in value.items():
                yield from look_at_files(entry, now_ms, f"{path}{name}.{key}.")
        elif name.endswith("_file") and value:
            yield _look_at_file(section, name, value, now_ms, f"{path}{name}: {value}")


def _look_at_file(section: Struct, name: str, file: str, now_ms: int, about: str) -> Finding:
    try:
        content = Path(file).read_bytes()
        if not content.strip():
            return wrong(FILES, about, "is empty", "name another file")
        if name == "users_file":
            parse_users(content)
        elif name == "jwks_file":
            parse_key_set(content)
        elif name.endswith("ca_file"):
            ssl.create_default_context(cafile=file)
        elif name == "certificate_file":
            key_file = getattr(section, "key_file", None) or None
            # Without a password OpenSSL would ask the terminal.
            server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            server.load_cert_chain(file, key_file, lambda: "")
        if name.endswith(("ca_file", "certificate_file")):
            shown = certificates.of_file(file, is_authority=name.endswith("ca_file"))
            return certificates.judged(FILES, about, shown, now_ms)
    except (OSError, ValueError) as error:
        return wrong(FILES, about, pem_cause(error), "mend it, or name another file")
    except WrongFile as error:
        return wrong(FILES, about, str(error), "mend it, or name another file")
    return well(FILES, about, "can be read")


def look_at_folders(config: Config) -> Iterator[Finding]:
    """A finding for each folder that a node writes to."""
    if "frontend" in config.roles and config.spool.enabled:
        yield _look_at_folder("spool.directory", spool_folder(config))
    if not config.kafka.clusters:
        yield _look_at_folder("log.directory", Path(config.log.directory))
    if "management" in config.roles and config.tracking.index_directory:
        yield _look_at_folder("tracking.index_directory", Path(config.tracking.index_directory))


def _look_at_folder(setting: str, folder: Path) -> Finding:
    about = f"{setting}: {folder}"
    # A start makes what is not there.
    nearest = folder.absolute()
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        trouble = "cannot be written to" if nearest.is_dir() else "is no folder"
        way_out = f"let the node's user write there, or set {setting}"
        return wrong(DISK, about, f"{nearest} {trouble}", way_out)
    disk = os.statvfs(nearest)
    free, total = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    seen = f"{decimal(free)} free of {decimal(total)}"
    if free < _FREE_BYTES_MIN:
        return wrong(DISK, about, seen, f"make room, or set {setting} to another disk")
    if free < _FREE_SHARE_MIN * total:
        return odd(DISK, about, seen, "make room")
    return well(DISK, about, seen)
