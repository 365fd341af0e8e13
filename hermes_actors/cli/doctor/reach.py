"""The servers that a node asks: the schema registry, and the collector of telemetry."""

import msgspec
import trio

from hermes_actors.cli.doctor.findings import Finding, odd, well, wrong
from hermes_actors.config import Config
from hermes_actors.model.redaction import without_user_info
from hermes_actors.schema.client import NoAnswer, RegistryClient

REGISTRY, TELEMETRY = "registry", "telemetry"

_NO_SUCH_TOPIC = "hermes.doctor"
_OTLP_PORTS = {"http/protobuf": 4318, "grpc": 4317}


async def look_at_registry(config: Config, url: str) -> list[Finding]:
    """Ask one URL for the versions of a subject that nobody has. Raises StartupError."""
    about = without_user_info(url)
    client = RegistryClient(msgspec.structs.replace(config.schema, urls=[url]))
    try:
        await client.look_up(_NO_SUCH_TOPIC, {})
    except NoAnswer as error:
        way_out = (
            "see the registry, and schema.urls, schema.user, schema.password_file, schema.ca_file"
        )
        return [wrong(REGISTRY, about, error.reason, way_out)]
    finally:
        await client.close()
    return [well(REGISTRY, about, "answers")]


async def look_at_collector(signal: str, host: str, port: int, timeout_s: float) -> list[Finding]:
    """Try to connect; nothing is sent."""
    about = f"{signal} to {host}:{port}"
    try:
        with trio.fail_after(timeout_s):
            stream = await trio.open_tcp_stream(host, port)
    except (OSError, trio.TooSlowError) as error:
        trouble = str(error) or f"no connection within {timeout_s:g} s"
        way_out = "start the collector, or mend the OTEL_* variables; until then it is dropped"
        return [odd(TELEMETRY, about, trouble, way_out)]
    await trio.aclose_forcefully(stream)
    return [well(TELEMETRY, about, "takes connections")]
