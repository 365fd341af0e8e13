"""The client of a call: its headers, credentials and certificate; and how calls end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, TypeVar

from google.protobuf.message import Message
from grpc.aio import ServicerContext

from hermes_actors.errors import ErrorCode, HermesError, Refused
from hermes_actors.publisher.edges.edge import UNREAD_S
from hermes_actors.publisher.edges.grpc.codes import CallEnded, ended_by
from hermes_actors.security.account import ClientCertificate, Credentials, sole_authorization

T = TypeVar("T")
_logger = logging.getLogger(__name__)

Context = ServicerContext[bytes, bytes]
"""A call: requests and answers are encoded."""

_OWN = {"te", "content-type"}
"""Headers of gRPC itself, besides `grpc-…`."""


def headers_of(context: Context) -> list[tuple[bytes, bytes]]:
    """The metadata of a call, without those of gRPC itself and binary ones."""
    return [
        (name.encode(), value.encode())
        for name, value in context.invocation_metadata() or ()
        if isinstance(value, str) and name not in _OWN and not name.startswith("grpc-")
    ]


def certificate_of(context: Context) -> ClientCertificate | None:
    """The client's verified certificate, or None."""
    found = context.auth_context()
    if "x509_pem_cert" not in found:
        return None

    def named(name: str) -> tuple[str, ...]:
        return tuple(value.decode(errors="replace") for value in found.get(name, ()))

    common_names = named("x509_common_name")
    return ClientCertificate(
        common_names[-1] if common_names else "",
        named("peer_dns"),
        named("peer_uri"),
        named("peer_email"),
    )


def credentials_of(context: Context) -> Credentials:
    """The credentials of a call. Raises Refused."""
    pairs = [(name.decode(), value.decode()) for name, value in headers_of(context)]
    authorization = sole_authorization([value for name, value in pairs if name == "authorization"])
    headers = dict(pairs)
    return Credentials(authorization, certificate_of(context), lambda name: headers.get(name, ""))


async def written(context: Context, answer: Message) -> None:
    """Write one answer of a stream. Raises Refused if the client reads nothing for too long."""
    try:
        async with asyncio.timeout(UNREAD_S):
            await context.write(answer.SerializeToString())
    except TimeoutError as error:
        raise Refused(
            f"For {UNREAD_S:g} s the client read nothing of its answers", ErrorCode.TIMEOUT
        ) from error


Call = Callable[[Any, Context], Awaitable[T]]


def ending(call: Call[T]) -> Call[T]:
    """The call, but its errors are those of gRPC."""

    @wraps(call)
    async def served(request: Any, context: Context) -> T:
        try:
            return await call(request, context)
        except HermesError as error:
            end = ended_by(error)
        except CallEnded as error:
            end = error
        except Exception:
            # gRPC would show the client its text.
            _logger.exception("A call failed")
            end = ended_by(HermesError("The call failed", ErrorCode.INTERNAL_ERROR))
        # This raises, outside of the handlers above, so that gRPC does not log their errors.
        return await context.abort(end.code, end.text, end.metadata)

    return served
