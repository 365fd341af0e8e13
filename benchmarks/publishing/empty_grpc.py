"""The floor of gRPC: a server of grpcio alone that answers 201 at once, until killed.

python benchmarks/publishing/empty_grpc.py
"""

from typing import Any

import grpc
import uvloop

from hermes_actors.rpc.v1 import broker_pb2

SERVICE = "hermes.v1.PublisherService"
_OUTCOME = broker_pb2.PublishOutcome(message_id="0" * 36, http_status=201)
_ANSWER = broker_pb2.PublishResponse(outcomes=[_OUTCOME]).SerializeToString()
_FRAME = broker_pb2.PublishStreamResponse(
    frames=[broker_pb2.PublishedFrame(outcomes=[_OUTCOME])]
).SerializeToString()


async def publish(_request: bytes, _context: Any) -> bytes:
    """Answer without looking at the request."""
    return _ANSWER


async def publish_stream(_requests: object, context: Any) -> None:
    """Answer each frame with one outcome."""
    while isinstance(await context.read(), bytes):
        await context.write(_FRAME)


async def serve() -> None:
    """Serve; the first line of output is the port."""
    server = grpc.aio.server()
    methods: dict[str, Any] = {
        "Publish": grpc.unary_unary_rpc_method_handler(publish),
        "PublishStream": grpc.stream_stream_rpc_method_handler(publish_stream),
    }
    handler: Any = grpc.method_handlers_generic_handler(SERVICE, methods)
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(serve())
