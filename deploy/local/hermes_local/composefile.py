"""Reads the part of the Compose format that deploy/compose.yaml uses; other keys are errors."""

import re
from collections.abc import Collection, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from hermes_local.failures import LaunchFailed

_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*):-([^${}]*)\})?")

Nothing = Annotated[dict[str, Any], Meta(max_length=0)]
Duration = Annotated[str, Meta(pattern=r"^\d+s$")]
Test = Annotated[list[str], Meta(min_length=2)]
Published = Annotated[str, Meta(pattern=r"^[\d.]+:\d+:\d+$")]
Exposed = Annotated[str, Meta(pattern=r"^\d+$")]
Mount = Annotated[str, Meta(pattern=r"^[^:]+:/[^:]*[^:/](:ro)?$")]


class Dependency(Struct, forbid_unknown_fields=True):
    """What state another service must have before this one is started."""

    condition: Literal["service_healthy"]


class Healthcheck(Struct, forbid_unknown_fields=True):
    """A command that exits with 0 if its service is healthy; `test` begins with CMD."""

    test: Test
    timeout: Duration = "30s"
    # Compose's interval; here a service is checked once a second while it starts.
    interval: Duration = ""
    retries: int = 0
    start_period: Duration = ""
    start_interval: Duration = ""


class ServiceSpec(Struct, forbid_unknown_fields=True):
    """A service of the file. Keys in NOT_APPLIED are accepted, but have no meaning for a plain
    process.
    """

    image: str
    environment: dict[str, str] = {}
    ports: list[Published] = []
    expose: list[Exposed] = []
    volumes: list[Mount] = []
    depends_on: dict[str, Dependency] = {}
    healthcheck: Healthcheck | None = None
    stop_grace_period: Duration = "10s"
    command: Any = None
    build: Any = None
    cap_drop: Any = None
    deploy: Any = None
    init: Any = None
    networks: Any = None
    read_only: Any = None
    restart: Any = None
    security_opt: Any = None
    tmpfs: Any = None

    @property
    def mounts(self) -> list[tuple[str, str]]:
        """(source, target) of each volume. The source is a name, or a path that begins
        with . or /.
        """
        return [(each.split(":")[0], each.split(":")[1]) for each in self.volumes]


NOT_APPLIED = ("cap_drop", "deploy", "init", "networks", "read_only", "restart", "security_opt")
_Kind = TypeVar("_Kind")


class _Tree(Struct, forbid_unknown_fields=True):
    services: dict[str, dict[str, Any]]
    name: str = ""
    networks: dict[str, Nothing] = {}
    volumes: dict[str, Nothing] = {}


def read(path: Path, variables: Mapping[str, str]) -> dict[str, ServiceSpec]:
    """The file's services, in order, with variables substituted. Raises LaunchFailed."""
    # Imported here, because the command's help does not need it.
    import yaml

    try:
        tree = yaml.safe_load(path.read_text())
    except OSError as error:
        raise LaunchFailed(
            f"{path}: cannot be read: {error.strerror}; name another with --file"
        ) from error
    except yaml.YAMLError as error:
        raise LaunchFailed(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if (path.parent / ".env").exists():
        raise LaunchFailed(
            f"{path.parent / '.env'}: Compose would read this file, this launcher does not; "
            "export its variables, and move it away"
        )
    return parse(tree, variables)


def parse(tree: Any, variables: Mapping[str, str]) -> dict[str, ServiceSpec]:
    """As `read`, from the parsed file with anchors and merge keys resolved. Raises LaunchFailed."""
    if isinstance(tree, dict):
        # Extension fields are only used by anchors, which are resolved.
        tree = {key: value for key, value in tree.items() if not str(key).startswith("x-")}
    top = _converted(tree, _Tree, "compose file")
    services = {
        name: _converted(_filled(each, variables), ServiceSpec, f"services.{name}")
        for name, each in top.services.items()
    }
    for name, spec in services.items():
        place = f"services.{name}"
        if spec.healthcheck is not None and spec.healthcheck.test[0] != "CMD":
            raise LaunchFailed(f"{place}.healthcheck.test: only the form [CMD, …] is supported")
        for source, _ in spec.mounts:
            if not source.startswith((".", "/")) and source not in top.volumes:
                raise LaunchFailed(f"{place}.volumes: '{source}' is not named under volumes")
    return services


def in_order(services: Mapping[str, ServiceSpec], wanted: Iterable[str]) -> list[str]:
    """The wanted services and all their dependencies, each after its own. Raises LaunchFailed."""
    needs: dict[str, Collection[str]] = {}
    left = [*wanted]
    for name in left:
        if name not in services:
            raise LaunchFailed(f"there is no service '{name}'; known are {', '.join(services)}")
        needs[name] = services[name].depends_on
        left += [each for each in needs[name] if each not in needs]
    try:
        return [*TopologicalSorter(needs).static_order()]
    except CycleError as error:
        circle = " → ".join(reversed(error.args[1]))
        raise LaunchFailed(f"depends_on: has a cycle: {circle}") from error


def _converted(tree: Any, kind: type[_Kind], place: str) -> _Kind:
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError as error:
        raise LaunchFailed(
            f"{place}: {error}; this launcher supports only what deploy/compose.yaml uses of "
            "Compose"
        ) from error


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    """Substitute ${NAME:-default}, the only form supported. Raises LaunchFailed."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _value(found, variables), value)
    if isinstance(value, dict):
        return {key: _filled(each, variables) for key, each in value.items()}
    return [_filled(each, variables) for each in value] if isinstance(value, list) else value


def _value(found: re.Match[str], variables: Mapping[str, str]) -> str:
    if found[1] is None:
        raise LaunchFailed(
            f"'{found.string}': this launcher supports variables only as ${{NAME:-default}}"
        )
    return variables.get(found[1]) or found[2]
