"""Whether the files and folders that a configuration names are there and hold what they should."""

import os
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes_actors.config import Config
from hermes_actors.runtime.network_causes import pem_cause
from hermes_actors.security.keyset import parse_key_set
from hermes_actors.security.users import WrongFile, parse_users

_PARSED: dict[str, Callable[[bytes], object]] = {
    "users_file": parse_users,
    "jwks_file": parse_key_set,
}


def file_problems(config: Config) -> Iterator[str]:
    """A sentence for each field whose file cannot be read or used here, or whose folder could not
    be written to; by whoever runs this, on this machine.
    """
    yield from _in_section(config, "")
    if "frontend" in config.roles and config.spool.enabled:
        yield from _folder("spool.directory", config.spool.directory)
    if not config.kafka.clusters:
        yield from _folder("log.directory", config.log.directory)


def _in_section(section: Struct, path: str) -> Iterator[str]:
    files: dict[str, str] = {}
    for each in msgspec.structs.fields(section):
        value = getattr(section, each.name)
        if isinstance(value, Struct):
            yield from _in_section(value, f"{path}{each.name}.")
        elif isinstance(value, dict):
            for name, entry in value.items():
                yield from _in_section(entry, f"{path}{each.name}.{name}.")
        elif each.name.endswith("_file") and value:
            files[each.name] = value
    problems = {name: _problem(name, file) for name, file in files.items()}
    if not any(problems.get(name) for name in ("certificate_file", "key_file")):
        problems["certificate_file"] = _pair_problem(files)
    for name, problem in problems.items():
        if problem:
            yield f"{path}{name}: {files[name]}: {problem}"


def _problem(name: str, file: str) -> str:
    """Why this one file is of no use; "" when it is."""
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        return f"cannot be read: {error.strerror}; name another file"
    if not content.strip():
        return "is empty; name another file"
    try:
        if name in _PARSED:
            _PARSED[name](content)
        elif name.endswith("ca_file"):
            ssl.create_default_context(cafile=file)
    except WrongFile as error:
        return str(error)
    except (OSError, ssl.SSLError) as error:
        return f"{pem_cause(error)}; it is a PEM file of certificates of authorities"
    return ""


def _pair_problem(files: dict[str, str]) -> str:
    """Why a certificate and its key do not go together; "" when they do, or are not there."""
    if "certificate_file" not in files:
        return ""
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            files["certificate_file"], files.get("key_file"), _no_password
        )
    except (OSError, ssl.SSLError) as error:
        return f"{pem_cause(error)}; it is a PEM file, key_file that of its key without a password"
    return ""


def _no_password() -> str:
    # Without this OpenSSL would ask the terminal.
    return ""


def _folder(field: str, directory: str) -> Iterator[str]:
    place = Path(directory).absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        yield f"{field}: {directory}: {place} is no folder; name another one"
    elif not os.access(place, os.W_OK | os.X_OK):
        yield f"{field}: {directory}: {place} cannot be written to; give the node's user the right"
