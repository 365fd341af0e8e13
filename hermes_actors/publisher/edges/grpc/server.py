"""The gRPC listener of a node: its services, health, reflection and TLS."""

import asyncio
from pathlib import Path
from typing import Self

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from hermes_actors.config import GrpcConfig, TlsConfig
from hermes_actors.publisher.drain import Drain
from hermes_actors.publisher.edges.grpc.callers import ending
from hermes_actors.publisher.edges.grpc.publishing import PublisherCalls
from hermes_actors.publisher.edges.grpc.subscribing import SubscriberCalls
from hermes_actors.publisher.edges.listener import PortUnusable
from hermes_actors.publisher.edges.tls import ListenerTls
from hermes_actors.rpc.v1 import broker_pb2

PUBLISHER = broker_pb2.DESCRIPTOR.services_by_name["PublisherService"].full_name
SUBSCRIBER = broker_pb2.DESCRIPTOR.services_by_name["SubscriberService"].full_name

_HEALTH_S = 0.5
_KEEPALIVE_MS = 60_000
_REQUEST_BYTES = 4_194_304
_FRAMING_BYTES = 65_536
_READ_AHEAD_BYTES = 1_048_576
_UP = health_pb2.HealthCheckResponse.SERVING
_DOWN = health_pb2.HealthCheckResponse.NOT_SERVING


class GrpcTls(ListenerTls):
    """The TLS of the gRPC listener. gRPC has its own TLS: it gets the files' contents."""

    pair: grpc.ServerCertificateConfiguration

    def __new__(cls, config: TlsConfig) -> Self:
        """As ListenerTls."""
        return super().__new__(cls, config, "")

    def __init__(self, config: TlsConfig) -> None:
        self._is_required = config.client_auth == "required"
        super().__init__(config, "grpc.tls")

    def renewed(self, content: bytes) -> float:
        """As `ListenerTls.renewed`."""
        expires_s = super().renewed(content)
        chain, key, *authorities = [Path(each).read_bytes() for each in self.files]
        self.pair = grpc.ssl_server_certificate_configuration([(key, chain)], *authorities)
        return expires_s

    def credentials(self) -> grpc.ServerCredentials:
        """Each handshake uses the newest certificate."""
        return grpc.dynamic_ssl_server_credentials(
            self.pair, lambda: self.pair, require_client_authentication=self._is_required
        )


class GrpcServer:
    """Serves the parts of the node that it has. From trio, call its coroutines through
    `guest.call`.

    `port` is 0 until `bind`. Raises StartupError if a certificate cannot be read.
    """

    def __init__(
        self,
        config: GrpcConfig,
        drain: Drain,
        publisher: PublisherCalls | None,
        subscriber: SubscriberCalls | None,
        *,
        body_bytes_max: int,
        header_bytes_max: int,
    ) -> None:
        self._config = config
        self._drain = drain
        self._publisher = publisher
        self._subscriber = subscriber
        self._options = (
            # Otherwise the port would silently be shared with another process.
            ("grpc.so_reuseport", 0),
            (
                "grpc.max_receive_message_length",
                max(_REQUEST_BYTES, body_bytes_max + _FRAMING_BYTES),
            ),
            ("grpc.max_metadata_size", header_bytes_max),
            ("grpc.absolute_max_metadata_size", header_bytes_max),
            # A small compressed request could become a large one.
            ("grpc.compression_enabled_algorithms_bitset", 1),
            # What gRPC reads of a stream before it is asked to; otherwise it chooses up to 16 MiB.
            ("grpc.http2.lookahead_bytes", _READ_AHEAD_BYTES),
            ("grpc.http2.bdp_probe", 0),
            ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
            ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        )
        self.port = 0
        self.tls = GrpcTls(config.tls.listener) if config.tls.certificate_file else None

    async def bind(self) -> None:
        """Take the port. Raises PortUnusable."""
        config = self._config
        self._server = grpc.aio.server(
            options=self._options, maximum_concurrent_rpcs=config.calls_max
        )
        services = []
        if (publisher := self._publisher) is not None:
            services.append(PUBLISHER)
            self._add(
                PUBLISHER,
                Publish=grpc.unary_unary_rpc_method_handler(ending(publisher.publish)),
                PublishStream=grpc.stream_stream_rpc_method_handler(
                    ending(publisher.publish_stream)
                ),
            )
        if (subscriber := self._subscriber) is not None:
            services.append(SUBSCRIBER)
            self._add(
                SUBSCRIBER,
                Subscribe=grpc.stream_stream_rpc_method_handler(ending(subscriber.subscribe)),
            )
        self._services = services
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        await self._tell_health()
        reflection.enable_server_reflection(
            (*services, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )
        host = f"[{config.host}]" if ":" in config.host else config.host
        address = f"{host}:{config.port}"
        try:
            if self.tls is None:
                self.port = self._server.add_insecure_port(address)
            else:
                self.port = self._server.add_secure_port(address, self.tls.credentials())
        except RuntimeError as error:
            # Its text does not say why, which gRPC logs.
            raise PortUnusable(
                f"grpc.port: cannot listen on {config.host} port {config.port}: another process "
                "may do; stop it or choose another port",
                "grpc.port",
            ) from error

    async def start(self) -> None:
        """Answer calls."""
        await self._server.start()
        self._telling = asyncio.create_task(self._keep_telling())

    async def stop(self, grace_s: float = 3.0) -> None:
        """Take no more calls; those under way may end within `grace_s`."""
        self._telling.cancel()
        await asyncio.wait([self._telling])
        await self._server.stop(grace_s)

    def _add(self, service: str, **methods: "grpc.RpcMethodHandler[bytes, bytes]") -> None:
        handler = grpc.method_handlers_generic_handler(service, methods)
        self._server.add_generic_rpc_handlers((handler,))

    async def _keep_telling(self) -> None:
        while True:
            await self._tell_health()
            await asyncio.sleep(_HEALTH_S)

    async def _tell_health(self) -> None:
        status = _UP if self._drain.is_ready else _DOWN
        for service in ("", *self._services):
            await self._health.set(service, status)
