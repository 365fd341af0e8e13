"""A frontend over a memory log with its gRPC port, and clients of it, on one host loop."""

from contextlib import asynccontextmanager

import grpc
import trio

from hermes_actors.config import GrpcConfig
from hermes_actors.publisher.edges.grpc.publishing import PublisherCalls
from hermes_actors.publisher.edges.grpc.server import GrpcServer
from hermes_actors.rpc.v1 import broker_pb2, broker_pb2_grpc
from hermes_actors.runtime import guest

TOPIC = "shop.orders"


def message(data=b"{}", key="", **attributes):
    named = {name.replace("_", "-"): value for name, value in attributes.items()}
    return broker_pb2.Message(data=data, ordering_key=key, attributes=named)


def frame(*messages, topic=TOPIC, sequence=0):
    return broker_pb2.PublishStreamRequest(topic=topic, messages=messages, sequence=sequence)


class Scene:
    """The world of `open_world`, and a channel to its gRPC port."""

    def __init__(self, world, server):
        self.world = world
        self.server = server
        self.channels = []
        self.channel = self.stub = None

    async def connect(self, credentials=None):
        """The scene of another client."""
        address = f"localhost:{self.server.port}"
        # Otherwise the client reads on for an application that does not.
        options = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_536))

        async def connected():
            if credentials is None:
                return grpc.aio.insecure_channel(address, options)
            return grpc.aio.secure_channel(address, credentials, options)

        made = Scene(self.world, self.server)
        made.channel = await guest.call(connected)
        made.stub = broker_pb2_grpc.PublisherServiceStub(made.channel)
        self.channels.append(made.channel)
        made.channels = self.channels
        return made

    async def publish(self, *messages, topic=TOPIC, within_s=5.0, metadata=()):
        """The outcomes; raises AioRpcError."""
        request = broker_pb2.PublishRequest(topic=topic, messages=messages)

        async def call():
            return await self.stub.Publish(request, timeout=within_s, metadata=metadata)

        return (await guest.call(call)).outcomes

    async def outcome(self, one, topic=TOPIC, metadata=()):
        """(code, http status, error code, text) of one message published alone."""
        try:
            (each,) = await self.publish(one, topic=topic, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            more = dict(error.trailing_metadata())
            status, code = int(more["hermes-http-status"]), more.get("hermes-error-code", "")
            return error.code().value[0], status, code, error.details()
        return each.code, each.http_status, each.error_code, each.error_message

    async def stream(self, *frames, metadata=()):
        """The outcomes of these frames, by sequence; raises AioRpcError."""

        async def call():
            found = {}
            async for answer in self.stub.PublishStream(iter(frames), metadata=metadata):
                found |= {each.sequence: list(each.outcomes) for each in answer.frames}
            return found

        return await guest.call(call)


@asynccontextmanager
async def opened(
    open_world, *, topic=(), parts=None, grpc_config=None, credentials=None, **settings
):
    """`topic` are the settings of TOPIC, `parts` those of the Frontend."""
    settings = {"idle_timeout_ms": 2_000, "graceful_shutdown_initial_wait_ms": 0, **settings}
    async with open_world(parts=parts or {}, **settings) as world:
        await world.add_topic(TOPIC, **dict(topic))
        config = grpc_config or GrpcConfig(port=0)
        frontend = world.frontend
        server = GrpcServer(
            config,
            frontend.drain,
            PublisherCalls(frontend),
            None,
            body_bytes_max=frontend.config.body_bytes_max,
            header_bytes_max=frontend.config.header_bytes_max,
        )
        await guest.call(server.bind)
        await guest.call(server.start)
        scene = Scene(world, server)
        try:
            yield await scene.connect(credentials)
        finally:
            with trio.CancelScope(shield=True):
                for each in scene.channels:
                    await guest.call(each.close)
                await guest.call(server.stop, 0.5)


def run(main):
    """Run it as the product runs: trio as the guest of uvloop."""
    guest.run(main)
