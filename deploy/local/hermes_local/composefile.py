"""Reads a compose file into plain values; what this launcher does not know is an error, by name."""

import ipaddress
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hermes_local.interpolation import ComposeWrong, interpolated

NOT_APPLIED = {
    "cap_add",
    "cap_drop",
    "container_name",
    "deploy",
    "hostname",
    "init",
    "labels",
    "logging",
    "networks",
    "pull_policy",
    "read_only",
    "restart",
    "security_opt",
    "ulimits",
    "user",
}
"""Keys of a service that mean something to a container and nothing to a plain process."""
_APPLIED = {
    "build",
    "command",
    "depends_on",
    "entrypoint",
    "environment",
    "expose",
    "healthcheck",
    "image",
    "ports",
    "profiles",
    "stop_grace_period",
    "stop_signal",
    "tmpfs",
    "volumes",
}
_TOP = {"name", "services", "networks", "volumes"}
_CONDITIONS = ("service_started", "service_healthy")
_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:h|ms|us|m|s))+")
_STOP_GRACE_DEFAULT_S = 10.0
_EVERYWHERE = "0.0.0.0"


@dataclass(frozen=True)
class Build:
    """Where an image is built from."""

    context: Path
    dockerfile: Path


@dataclass(frozen=True)
class Healthcheck:
    """A command that exits with 0 when its service is healthy, and how often it is asked."""

    test: tuple[str, ...]
    interval_s: float = 30.0
    timeout_s: float = 30.0
    retries: int = 3
    start_period_s: float = 0.0
    start_interval_s: float = 5.0


@dataclass(frozen=True)
class Port:
    """A container's port and, where it is published, the machine's address and port for it."""

    target: int
    published: int | None = None
    host: str = _EVERYWHERE


@dataclass(frozen=True)
class Mount:
    """A file or folder of the machine (`is_bind`), or a named volume, and where it appears."""

    source: str
    target: str
    is_bind: bool


@dataclass(frozen=True)
class ServiceSpec:
    """One service, as far as it means something to a plain process."""

    name: str
    image: str
    build: Build | None = None
    entrypoint: tuple[str, ...] | None = None
    command: tuple[str, ...] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[Port, ...] = ()
    mounts: tuple[Mount, ...] = ()
    tmpfs: tuple[str, ...] = ()
    depends_on: Mapping[str, str] = field(default_factory=dict)
    healthcheck: Healthcheck | None = None
    stop_grace_s: float = _STOP_GRACE_DEFAULT_S
    stop_signal: str = "SIGTERM"
    profiles: tuple[str, ...] = ()
    not_applied: tuple[str, ...] = ()


@dataclass(frozen=True)
class ComposeFile:
    """A whole file. Services are in the file's order."""

    path: Path
    name: str
    services: Mapping[str, ServiceSpec]
    volumes: tuple[str, ...] = ()


def read(path: Path, variables: Mapping[str, str]) -> ComposeFile:
    """The file with its variables put in. Raises ComposeWrong."""
    # Imported here: the command's help should not need it.
    import yaml

    try:
        tree = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ComposeWrong(
            f"{path}: cannot be read: {error.strerror}; name another with --file"
        ) from error
    except yaml.YAMLError as error:
        raise ComposeWrong(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if (path.parent / ".env").exists():
        raise ComposeWrong(
            f"{path.parent / '.env'}: is not read by this launcher, but by Compose; "
            "export its variables, and put it away"
        )
    return parse(tree, path, variables)


def parse(tree: Any, path: Path, variables: Mapping[str, str]) -> ComposeFile:
    """The file's tree, anchors and merge keys resolved, as values. Raises ComposeWrong."""
    top = _mapping(tree, str(path))
    # Extension fields were used up by the anchors in them; what they hold besides is nobody's.
    top = {key: value for key, value in top.items() if not str(key).startswith("x-")}
    _refuse_unknown(top, _TOP, str(path))
    top = interpolated(top, variables, "")
    networks = _mapping(top.get("networks") or {}, "networks")
    volumes = _mapping(top.get("volumes") or {}, "volumes")
    for place, named in (("networks", networks), ("volumes", volumes)):
        for name, settings in named.items():
            _refuse_unknown(_mapping(settings or {}, f"{place}.{name}"), set(), f"{place}.{name}")
    services = {
        name: _service(name, _mapping(each, f"services.{name}"), path.parent, set(networks))
        for name, each in _mapping(top.get("services"), "services").items()
    }
    for spec in services.values():
        for other in spec.depends_on:
            if other not in services:
                raise ComposeWrong(
                    f"services.{spec.name}.depends_on: there is no service '{other}'"
                )
        for mount in spec.mounts:
            if not mount.is_bind and mount.source not in volumes:
                raise ComposeWrong(
                    f"services.{spec.name}.volumes: '{mount.source}' is not named under volumes"
                )
    name = str(top.get("name") or path.parent.resolve().name)
    return ComposeFile(path, name, services, tuple(volumes))


def in_order(services: Mapping[str, ServiceSpec], wanted: Iterable[str]) -> list[str]:
    """The wanted services and all they depend on, each after what it depends on. ComposeWrong."""
    order: list[str] = []
    under_way: list[str] = []

    def visit(name: str) -> None:
        if name in order:
            return
        if name in under_way:
            circle = " → ".join([*under_way[under_way.index(name) :], name])
            raise ComposeWrong(f"depends_on: goes in a circle: {circle}")
        under_way.append(name)
        for other in services[name].depends_on:
            visit(other)
        under_way.pop()
        order.append(name)

    for name in wanted:
        if name not in services:
            raise ComposeWrong(f"there is no service '{name}'; there are {', '.join(services)}")
        visit(name)
    return order


def duration_s(text: object, place: str) -> float:
    """Seconds of a duration such as 1m30s. Raises ComposeWrong."""
    if not isinstance(text, str) or not _DURATION.fullmatch(text):
        raise ComposeWrong(f"{place}: '{text}' is not a duration; write for example 1m30s")
    return sum(
        float(number) * _UNITS_S[unit]
        for number, unit in re.findall(r"(\d+(?:\.\d+)?)(h|ms|us|m|s)", text)
    )


def _service(name: str, tree: Mapping[str, Any], folder: Path, networks: set[str]) -> ServiceSpec:
    place = f"services.{name}"
    tree = {key: value for key, value in tree.items() if not key.startswith("x-")}
    _refuse_unknown(tree, _APPLIED | NOT_APPLIED, place)
    if "image" not in tree:
        raise ComposeWrong(f"{place}.image: is missing; this launcher goes by it")
    for network in _names(tree.get("networks"), f"{place}.networks"):
        if network not in networks and network != "default":
            raise ComposeWrong(f"{place}.networks: there is no network '{network}'")
    grace = tree.get("stop_grace_period")
    return ServiceSpec(
        name=name,
        image=str(tree["image"]),
        build=_build(tree.get("build"), folder, f"{place}.build"),
        entrypoint=_words(tree.get("entrypoint"), f"{place}.entrypoint"),
        command=_words(tree.get("command"), f"{place}.command"),
        environment=_environment(tree.get("environment"), f"{place}.environment"),
        ports=(
            *(_port(each, f"{place}.ports") for each in _list(tree.get("ports"), place)),
            *(Port(int(each)) for each in _list(tree.get("expose"), f"{place}.expose")),
        ),
        mounts=tuple(
            _mount(each, folder, f"{place}.volumes")
            for each in _list(tree.get("volumes"), f"{place}.volumes")
        ),
        tmpfs=tuple(str(each).partition(":")[0] for each in _one_or_more(tree.get("tmpfs"))),
        depends_on=_depends_on(tree.get("depends_on"), f"{place}.depends_on"),
        healthcheck=_healthcheck(tree.get("healthcheck"), f"{place}.healthcheck"),
        stop_grace_s=_STOP_GRACE_DEFAULT_S
        if grace is None
        else duration_s(grace, f"{place}.stop_grace_period"),
        stop_signal=str(tree.get("stop_signal", "SIGTERM")),
        profiles=tuple(_list(tree.get("profiles"), f"{place}.profiles")),
        not_applied=tuple(sorted(tree.keys() & NOT_APPLIED)),
    )


def _build(tree: Any, folder: Path, place: str) -> Build | None:
    if tree is None:
        return None
    if isinstance(tree, str):
        tree = {"context": tree}
    tree = _mapping(tree, place)
    _refuse_unknown(tree, {"context", "dockerfile", "args", "target"}, place)
    context = (folder / str(tree.get("context", "."))).resolve()
    return Build(context, context / str(tree.get("dockerfile", "Dockerfile")))


def _environment(tree: Any, place: str) -> dict[str, str]:
    if isinstance(tree, list):
        pairs = [str(each).partition("=") for each in tree]
        for name, equals, _ in pairs:
            if not equals:
                raise ComposeWrong(f"{place}.{name}: has no value; write {name}=${{{name}}}")
        return {name: value for name, _, value in pairs}
    result = {}
    for name, value in _mapping(tree or {}, place).items():
        if isinstance(value, bool):
            raise ComposeWrong(f"{place}.{name}: a boolean; Compose wants it in quotes")
        if value is None:
            raise ComposeWrong(f"{place}.{name}: has no value; write ${{{name}}}")
        result[name] = str(value)
    return result


def _port(tree: Any, place: str) -> Port:
    if isinstance(tree, Mapping):
        _refuse_unknown(tree, {"target", "published", "host_ip", "protocol", "mode", "name"}, place)
        host, published = str(tree.get("host_ip", "")), str(tree.get("published", ""))
        target, protocol = str(tree.get("target", "")), str(tree.get("protocol", "tcp"))
    else:
        text, _, protocol = str(tree).partition("/")
        outside, _, target = text.rpartition(":")
        host, _, published = outside.rpartition(":")
    try:
        if protocol not in ("", "tcp"):
            raise ValueError("only TCP")
        host = str(ipaddress.ip_address(host or _EVERYWHERE))
        return Port(int(target), int(published) if published else None, host)
    except ValueError as error:
        raise ComposeWrong(
            f"{place}: '{tree}' is not understood ({error}); write [ADDRESS:]PORT:PORT, TCP only"
        ) from error


def _mount(tree: Any, folder: Path, place: str) -> Mount:
    if isinstance(tree, Mapping):
        _refuse_unknown(tree, {"type", "source", "target", "read_only"}, place)
        source, target = str(tree.get("source", "")), str(tree.get("target", ""))
        kind = tree.get("type")
        if kind not in ("bind", "volume") or not source or not target:
            raise ComposeWrong(f"{place}: expected type bind or volume, a source and a target")
        is_bind = kind == "bind"
    else:
        parts = str(tree).split(":")
        if len(parts) not in (2, 3) or (len(parts) == 3 and parts[2] not in ("ro", "rw")):
            raise ComposeWrong(f"{place}: '{tree}' is not understood; write SOURCE:TARGET[:ro]")
        source, target = parts[0], parts[1]
        is_bind = source.startswith((".", "/"))
    if not target.startswith("/"):
        raise ComposeWrong(f"{place}: the target '{target}' does not begin with /")
    if is_bind:
        source = str((folder / source).resolve())
    return Mount(source, target.rstrip("/"), is_bind)


def _depends_on(tree: Any, place: str) -> dict[str, str]:
    if tree is None or isinstance(tree, list):
        return {str(name): "service_started" for name in tree or []}
    result = {}
    for name, each in _mapping(tree, place).items():
        each = _mapping(each, f"{place}.{name}")
        _refuse_unknown(each, {"condition", "restart"}, f"{place}.{name}")
        condition = each.get("condition", "service_started")
        if condition not in _CONDITIONS:
            raise ComposeWrong(
                f"{place}.{name}.condition: '{condition}' is not known to this launcher; "
                f"it is {' or '.join(_CONDITIONS)}"
            )
        result[name] = condition
    return result


def _healthcheck(tree: Any, place: str) -> Healthcheck | None:
    if tree is None:
        return None
    tree = _mapping(tree, place)
    known = {"test", "interval", "timeout", "retries", "start_period", "start_interval", "disable"}
    _refuse_unknown(tree, known, place)
    test = tree.get("test")
    if tree.get("disable") or test == ["NONE"]:
        return None
    if not isinstance(test, list) or test[:1] != ["CMD"] or len(test) < 2:
        raise ComposeWrong(f"{place}.test: only the form [CMD, …] is known to this launcher")

    def seconds(key: str, default_s: float) -> float:
        return duration_s(tree[key], f"{place}.{key}") if key in tree else default_s

    return Healthcheck(
        tuple(str(each) for each in test[1:]),
        seconds("interval", 30.0),
        seconds("timeout", 30.0),
        int(tree.get("retries", 3)),
        seconds("start_period", 0.0),
        seconds("start_interval", 5.0),
    )


def _words(tree: Any, place: str) -> tuple[str, ...] | None:
    if tree is None:
        return None
    words = shlex.split(tree) if isinstance(tree, str) else _list(tree, place)
    return tuple(str(each) for each in words)


def _names(tree: Any, place: str) -> list[str]:
    if tree is None or isinstance(tree, list):
        return [str(each) for each in tree or []]
    return [str(each) for each in _mapping(tree, place)]


def _one_or_more(tree: Any) -> list[Any]:
    if tree is None:
        return []
    return tree if isinstance(tree, list) else [tree]


def _list(tree: Any, place: str) -> list[Any]:
    if tree is None:
        return []
    if not isinstance(tree, list):
        raise ComposeWrong(f"{place}: expected a list")
    return tree


def _mapping(tree: Any, place: str) -> dict[str, Any]:
    if not isinstance(tree, Mapping):
        raise ComposeWrong(f"{place}: expected names with values")
    return {str(key): value for key, value in tree.items()}


def _refuse_unknown(tree: Mapping[str, Any], known: set[str], place: str) -> None:
    for key in tree:
        if key not in known:
            raise ComposeWrong(
                f"{place}.{key}: is not known to this launcher, which runs services as plain "
                "processes; docs/deployment.md says what it knows"
            )
