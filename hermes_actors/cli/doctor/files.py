"""Whether the files and folders that a configuration names are there and hold what they should."""

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from cryptography import x509
from msgspec import Struct

from hermes_actors.cli.doctor.diagnosis import Diagnosis, Grade, fine, odd, span_of, wrong
from hermes_actors.cli.doctor.disk import folders, judge_folder, look_at_folder
from hermes_actors.config import Config
from hermes_actors.runtime.clock import Clock
from hermes_actors.runtime.network_causes import pem_cause
from hermes_actors.security.keyset import parse_key_set
from hermes_actors.security.users import WrongFile, parse_users

CHECK = "files"

_PARSED: dict[str, Callable[[bytes], object]] = {
    "users_file": parse_users,
    "jwks_file": parse_key_set,
}
_PEMS = ("certificate_file", "ca_file")
_RENEWED_BEFORE_MS = 14 * 86_400_000


def file_problems(config: Config, clock: Clock) -> Iterator[str]:
    """A sentence for each field whose file cannot be read or used here, or whose folder could not
    be written to; by whoever runs this, on this machine.
    """
    found = [*judge_files(config, clock)]
    for folder in folders(config):
        seen = look_at_folder(folder, clock)
        if seen.trouble:
            found.append(judge_folder(folder, seen))
    for each in found:
        if each.grade is Grade.FAIL:
            yield f"{each.about}: {each.seen}; {each.way_out}"


def judge_files(config: Config, clock: Clock) -> Iterator[Diagnosis]:
    """One line for each file that the configuration names. Blocks."""
    yield from _in_section(config, "", clock.now_ms())


def judge_dates(about: str, began_ms: int, ends_ms: int, now_ms: int, whose: str = "") -> Diagnosis:
    """How long a certificate is good for yet."""
    whose = f" of {whose}" if whose else ""
    if now_ms < began_ms:
        return wrong(
            CHECK,
            about,
            f"its certificate{whose} begins in {span_of(began_ms - now_ms)}",
            "wait until then, or set this machine's clock right",
        )
    if now_ms >= ends_ms:
        return wrong(
            CHECK,
            about,
            f"its certificate{whose} expired {span_of(now_ms - ends_ms)} ago",
            "have it renewed",
        )
    left = f"its certificate{whose} is good for another {span_of(ends_ms - now_ms)}"
    if ends_ms - now_ms < _RENEWED_BEFORE_MS:
        return odd(CHECK, about, left, "have it renewed")
    return fine(CHECK, about, left)


def _in_section(section: Struct, path: str, now_ms: int) -> Iterator[Diagnosis]:
    files: dict[str, str] = {}
    for each in msgspec.structs.fields(section):
        value = getattr(section, each.name)
        if isinstance(value, Struct):
            yield from _in_section(value, f"{path}{each.name}.", now_ms)
        elif isinstance(value, dict):
            for name, entry in value.items():
                yield from _in_section(entry, f"{path}{each.name}.{name}.", now_ms)
        elif each.name.endswith("_file") and value:
            files[each.name] = value
    problems = {name: _problem(name, file) for name, file in files.items()}
    if not any(problems.get(name) for name in ("certificate_file", "key_file")):
        problems["certificate_file"] = _pair_problem(files)
    for name, file in files.items():
        about = f"{path}{name}"
        if problem := problems.get(name):
            seen, _, way_out = problem.partition("; ")
            yield wrong(CHECK, about, f"{file}: {seen}", way_out or "mend it, or name another file")
        elif name.endswith(_PEMS):
            yield _dates(about, file, now_ms)
        else:
            yield fine(CHECK, about, f"{file} can be read")


def _dates(about: str, file: str, now_ms: int) -> Diagnosis:
    """By the certificate in the file that ends first, of a chain or a list of authorities."""
    try:
        found = x509.load_pem_x509_certificates(Path(file).read_bytes())
    except (OSError, ValueError) as error:
        return odd(CHECK, about, f"{file}: its dates cannot be read: {error}", "have it renewed")
    # An authority among others may have ended long ago: only the last one to end counts.
    pick = max if about.endswith("ca_file") else min
    counted = pick(found, key=lambda each: each.not_valid_after_utc)
    return judge_dates(
        about,
        round(1_000 * counted.not_valid_before_utc.timestamp()),
        round(1_000 * counted.not_valid_after_utc.timestamp()),
        now_ms,
        file,
    )


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
