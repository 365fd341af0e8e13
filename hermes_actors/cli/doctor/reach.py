"""Whether what a node asks beside its log answers: a schema registry, a collector."""

import os
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec
import trio
from msgspec import Struct

from hermes_actors.cli.doctor.diagnosis import Diagnosis, fine, odd, span_of, wrong
from hermes_actors.config import Config
from hermes_actors.errors import StartupError
from hermes_actors.model.redaction import without_user_info
from hermes_actors.runtime.network_causes import name_cause
from hermes_actors.schema.client import BadAnswer, RegistryAway, RegistryClient
from hermes_actors.telemetry.settings import TelemetrySettings

REGISTRY, TELEMETRY = "registry", "telemetry"

_NO_SUCH_TOPIC = "hermes.doctor"
_OTLP_PORTS = {"http/protobuf": 4318, "grpc": 4317}


class OtlpEndpoint(Struct, frozen=True):
    """The address that telemetry is sent to; `signals` are traces, metrics or both."""

    signals: str
    host: str
    port: int
    variable: str


async def look_at_registry(config: Config) -> list[Diagnosis]:
    """Ask each URL for the versions of a subject that nobody has."""
    found: list[Diagnosis] = []
    async with trio.open_nursery() as nursery:
        for url in config.schema.urls if config.schema.registry == "http" else ():
            nursery.start_soon(_look_at_registry, config, url, found)
    return sorted(found, key=lambda each: each.about)


def judge_registry(url: str, trouble: str) -> Diagnosis:
    """Whether schemas can be looked up there."""
    if not trouble:
        return fine(REGISTRY, url, "answers")
    return wrong(
        REGISTRY,
        url,
        trouble,
        "see schema.urls, schema.user, schema.password_file, schema.ca_file, and the registry; "
        "what is known already goes on until schema.expiry_ms",
    )


def collectors(settings: TelemetrySettings, env: Mapping[str, str]) -> list[OtlpEndpoint]:
    """The collectors that the standard variables send traces and metrics to."""
    found: dict[tuple[str, int, str], list[str]] = {}
    for signal, exporter, protocol in (
        ("traces", settings.traces, settings.traces_protocol),
        ("metrics", settings.metrics, settings.metrics_protocol),
    ):
        if exporter != "otlp":
            continue
        own = f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"
        variable = own if env.get(own, "").strip() else "OTEL_EXPORTER_OTLP_ENDPOINT"
        endpoint = env.get(variable, "").strip()
        parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint or 'localhost'}")
        usual = {"http": 80, "https": 443}.get(parts.scheme, 0)
        if protocol == "grpc" or not endpoint:
            usual = _OTLP_PORTS[protocol]
        place = (parts.hostname or "localhost", parts.port or usual, variable)
        found.setdefault(place, []).append(signal)
    return [OtlpEndpoint(" and ".join(signals), *place) for place, signals in found.items()]


async def look_at_collector(collector: OtlpEndpoint, timeout_s: float) -> str:
    """Why no connection can be made there in so long, "" when one can. Nothing is sent."""
    try:
        with trio.fail_after(timeout_s):
            stream = await trio.open_tcp_stream(collector.host, collector.port)
    except trio.TooSlowError:
        return f"no connection within {span_of(1_000 * timeout_s)}"
    except OSError as error:
        first = _first_cause(error)
        if isinstance(first, socket.gaierror):
            return name_cause(first)
        number = first.errno if isinstance(first, OSError) else None
        return os.strerror(number) if number else str(error)
    await trio.aclose_forcefully(stream)
    return ""


def judge_collector(collector: OtlpEndpoint, trouble: str) -> Diagnosis:
    """Whether telemetry arrives; a node goes on without it, and counts what it drops."""
    about = f"{collector.signals} to {collector.host}:{collector.port}"
    if not trouble:
        return fine(TELEMETRY, about, "takes connections")
    return odd(
        TELEMETRY,
        about,
        trouble,
        f"start the collector, or mend {collector.variable}; until then "
        "what should go there is dropped and counted",
    )


def _first_cause(error: BaseException) -> BaseException:
    """Of several addresses that failed, that of the first one."""
    while (cause := error.__cause__) is not None:
        error = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else cause
    return error


async def _look_at_registry(config: Config, url: str, found: list[Diagnosis]) -> None:
    shown = without_user_info(url)
    settings = msgspec.structs.replace(config.schema, urls=[url])
    client: RegistryClient | None = None
    trouble = ""
    try:
        client = RegistryClient(settings)
        await client.look_up(_NO_SUCH_TOPIC, {})
    except (RegistryAway, BadAnswer) as error:
        trouble = str(error)
    except StartupError as error:
        trouble = error.message
    finally:
        if client is not None:
            await client.close()
    found.append(judge_registry(shown, trouble))
