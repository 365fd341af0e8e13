"""Which datacentres a job reads, and where their logs are: from options or a TOML file."""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_spark.snapshot import Datacentre, EmbeddedLog, KafkaLog

_FORM = "NAME=kafka:HOST:PORT[,HOST:PORT…] or NAME=embedded:FOLDER"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SERVERS = re.compile(r"[^\s,:]+:\d+(,[^\s,:]+:\d+)*|\[[0-9A-Fa-f:]+\]:\d+")


class _Described(Struct, forbid_unknown_fields=True):
    kafka: str = ""
    client_properties: str = ""
    embedded: str = ""
    namespace: str = ""
    namespace_separator: str = "_"


def datacentres(file: Path | None, options: Sequence[str]) -> dict[str, Datacentre]:
    """The datacentres in the file and the options, by name, without ranges.

    The file has a table for each: `[dc1]`, with `kafka = "host:port,…"` or `embedded = "folder"`.
    It may have `client_properties` (a file with options of the Kafka client: TLS, SASL),
    `namespace` (default empty) and `namespace_separator` (default "_"). Relative paths are relative
    to the file. An option is `name=kafka:host:port,…` or `name=embedded:folder`. Raises UsageWrong.
    """
    found = {} if file is None else _of_file(file)
    for option in options:
        name, described = _of_option(option)
        if name in found:
            raise UsageWrong(f"--dc {option}: there is a {name} already; name each datacentre once")
        found[name] = described
    if not found:
        raise UsageWrong(f"no datacentre is named; give --dc {_FORM}, or --datacentres FILE")
    return found


def _of_option(option: str) -> tuple[str, Datacentre]:
    name, _, rest = option.partition("=")
    kind, _, place = rest.partition(":")
    if not _NAME.fullmatch(name) or kind not in ("kafka", "embedded") or not place:
        raise UsageWrong(f"--dc '{option}': write {_FORM}")
    described = _Described(kafka=place) if kind == "kafka" else _Described(embedded=place)
    return name, _checked(described, f"--dc '{option}'", Path())


def _of_file(file: Path) -> dict[str, Datacentre]:
    try:
        tables = msgspec.toml.decode(file.read_bytes(), type=dict[str, _Described])
    except OSError as error:
        raise UsageWrong(f"--datacentres {file}: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageWrong(f"--datacentres {file}: {error}") from error
    return {
        name: _checked(each, f"--datacentres {file}: {name}", file.parent)
        for name, each in tables.items()
    }


def _checked(described: _Described, place: str, base: Path) -> Datacentre:
    if bool(described.kafka) == bool(described.embedded):
        raise UsageWrong(f"{place}: say either kafka (host:port,…) or embedded (a folder)")
    if described.embedded:
        if described.client_properties or described.namespace:
            raise UsageWrong(f"{place}: client_properties and namespace belong to Kafka only")
        return Datacentre(EmbeddedLog(str((base / described.embedded).absolute())))
    if not _SERVERS.fullmatch(described.kafka):
        raise UsageWrong(f"{place}: '{described.kafka}' is not host:port, or several with commas")
    options = described.client_properties and str((base / described.client_properties).absolute())
    if options and not Path(options).is_file():
        raise UsageWrong(f"{place}: client_properties: there is no file {options}")
    return Datacentre(
        KafkaLog(described.kafka, options), described.namespace, described.namespace_separator
    )
