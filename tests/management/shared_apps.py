"""Apps that tests use one after another, because building one takes longer than most tests."""

import inspect
from collections.abc import Callable
from typing import Any

import msgspec

from hermes_actors.config import Config, ManagementConfig
from hermes_actors.management.administration import Administration
from hermes_actors.management.app import build_app
from hermes_actors.management.http.answers import AsgiApp
from hermes_actors.runtime.bridge import TrioBridge
from hermes_actors.telemetry.metrics import Metrics


class StandIn:
    # Stands for whatever `resolve` returns at the time of a call, including its attributes.

    def __init__(self, resolve: Callable[[], Any]) -> None:
        self._resolve = resolve

    def __getattr__(self, name: str) -> Any:
        return StandIn(lambda: getattr(self._resolve(), name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._resolve()(*args, **kwargs)

    def __bool__(self) -> bool:
        return bool(self._resolve())

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return inspect.getdoc(self._resolve())

    @property
    def __signature__(self) -> inspect.Signature:
        """Routes are built from the signatures of their functions."""
        return inspect.signature(self._resolve())


class SharedApp:
    """The real app, with the administration and the bridge of the test that is using it."""

    def __init__(self, config: Config, first: Administration) -> None:
        self._administration: Administration | None = first
        self._bridge: TrioBridge | None = None
        self._metrics: list[Metrics] = []
        administration: Any = StandIn(lambda: self._administration)
        bridge: Any = StandIn(lambda: self._bridge)
        self.app = build_app(administration, bridge, config, self._metrics)

    def stand_before(
        self, administration: Administration, bridge: TrioBridge, metrics: list[Metrics]
    ) -> None:
        self._administration, self._bridge, self._metrics[:] = administration, bridge, metrics

    def step_down(self) -> None:
        self._administration, self._bridge, self._metrics[:] = None, None, []


_free: dict[bytes, list[SharedApp]] = {}


def _read_by_build_app(settings: ManagementConfig) -> bytes:
    # All other settings are read by the administration.
    return msgspec.json.encode(
        (
            settings.authentication,
            settings.trusted_origins,
            settings.cors_allowed_origin,
            settings.host,
            settings.allowed_hosts,
            settings.body_timeout_ms,
            settings.graphql_enabled,
        )
    )


class Apps:
    """The apps of one test, each exclusively until the test ends."""

    def __init__(self) -> None:
        self._lent: list[tuple[bytes, SharedApp]] = []

    def app(
        self,
        administration: Administration,
        bridge: TrioBridge,
        config: Config,
        metrics: list[Metrics],
    ) -> AsgiApp:
        """As `build_app` builds it from the same arguments."""
        key = _read_by_build_app(config.management)
        free = _free.setdefault(key, [])
        shared = free.pop() if free else SharedApp(config, administration)
        self._lent.append((key, shared))
        shared.stand_before(administration, bridge, metrics)
        return shared.app

    def give_back(self) -> None:
        for key, shared in self._lent:
            shared.step_down()
            _free[key].append(shared)
        self._lent.clear()
