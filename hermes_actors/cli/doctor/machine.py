"""Checks the files and folders in the configuration. All functions block."""

import os
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from msgspec import Struct
from rich.filesize import decimal

from hermes_actors.cli.doctor.findings import (
    FAIL,
    OK,
    WARN,
    Finding,
    certificate_finding,
    finding,
)
from hermes_actors.config import Config
from hermes_actors.fallback.spool.opening import spool_folder
from hermes_actors.runtime.network_causes import pem_cause
from hermes_actors.security.keyset import parse_key_set
from hermes_actors.security.users import WrongFile, parse_users

_FREE_BYTES_MIN = 67_108_864
_FREE_SHARE_MIN = 0.05


def look_at_machine(config: Config, now_ms: int) -> Iterator[Finding]:
    """Yield a finding for each file and folder."""
    yield from _look_at_files(config, now_ms)
    if "frontend" in config.roles and config.spool.enabled:
        yield _look_at_folder("spool.directory", spool_folder(config))
    if not config.kafka.clusters:
        yield _look_at_folder("log.directory", Path(config.log.directory))
    if "management" in config.roles and config.tracking.index_directory:
        yield _look_at_folder("tracking.index_directory", Path(config.tracking.index_directory))


def _look_at_files(section: Struct, now_ms: int, path: str = "") -> Iterator[Finding]:
    for name in section.__struct_fields__:
        value = getattr(section, name)
        if isinstance(value, Struct):
            yield from _look_at_files(value, now_ms, f"{path}{name}.")
        elif isinstance(value, dict):
            for key, entry in value.items():
                yield from _look_at_files(entry, now_ms, f"{path}{name}.{key}.")
        elif name.endswith("_file") and value:
            yield _look_at_file(section, name, value, now_ms, f"{path}{name}: {value}")


def _look_at_file(section: Struct, name: str, file: str, now_ms: int, about: str) -> Finding:
    try:
        content = Path(file).read_bytes()
        if not content.strip():
            return finding(FAIL, "files", about, "is empty; name another file")
        if name == "users_file":
            parse_users(content)
        elif name == "jwks_file":
            parse_key_set(content)
        elif name.endswith("ca_file"):
            ssl.create_default_context(cafile=file)
        elif name == "certificate_file":
            server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            # With a password callback OpenSSL does not ask on the terminal.
            server.load_cert_chain(file, getattr(section, "key_file", None) or None, lambda: "")
            return certificate_finding("files", about, first_to_end(content), now_ms)
    except (OSError, ValueError, WrongFile) as error:
        why = str(error) if isinstance(error, WrongFile) else pem_cause(error)
        return finding(FAIL, "files", about, f"{why}; fix it, or name another file")
    return finding(OK, "files", about, "can be read")


def first_to_end(content: bytes) -> x509.Certificate:
    """Return the certificate of a PEM file that expires first. Raises ValueError."""
    found = x509.load_pem_x509_certificates(content)
    return min(found, key=lambda each: each.not_valid_after_utc)


def _look_at_folder(setting: str, folder: Path) -> Finding:
    about = f"{setting}: {folder}"
    # A node creates missing folders at its start.
    nearest = folder.absolute()
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        trouble = "cannot be written to" if nearest.is_dir() else "is not a folder"
        way_out = f"make it writable for the node's user, or set {setting}"
        return finding(FAIL, "disk", about, f"{nearest} {trouble}; {way_out}")
    disk = shutil.disk_usage(nearest)
    seen = f"{decimal(disk.free)} free of {decimal(disk.total)}"
    if disk.free < _FREE_BYTES_MIN:
        return finding(FAIL, "disk", about, f"{seen}; make room, or set {setting} to another disk")
    if disk.free < _FREE_SHARE_MIN * disk.total:
        return finding(WARN, "disk", about, f"{seen}; make room")
    return finding(OK, "disk", about, seen)
