"""The seam for resolvers of your own: what an endpoint means, in addresses to push to.

A resolver is named in `consumers.recipients.resolver` as `module:function`; the function is called
once with a `ResolverContext` and returns an `EndpointResolver`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from hermes_actors.config.plugins import load_plugin
from hermes_actors.consumer.recipients.endpoint import Unresolved
from hermes_actors.model.message import Message
from hermes_actors.model.redaction import redacted, without_user_info
from hermes_actors.runtime.clock import Clock

__all__ = ["Asked", "EndpointResolver", "ResolverContext", "Unresolved", "open_resolver"]

_FIELD = "consumers.recipients.resolver"


class ResolverContext(Struct, frozen=True):
    """The means that a resolver may use: the name of its datacentre, and the node's clock."""

    dc: str
    clock: Clock


class Asked(Struct, frozen=True):
    """One question. `subscription` is `group.topic$name`; `endpoint` is the subscription's without
    its credentials; `metadata` is its endpointAddressResolverMetadata, not to be changed.
    """

    subscription: str
    endpoint: str
    metadata: Mapping[str, Any]
    message: Message

    def __repr__(self) -> str:
        return redacted(
            self,
            endpoint=repr(without_user_info(self.endpoint)),
            metadata=repr(list(self.metadata)),
        )


class EndpointResolver(Protocol):
    """Turns endpoints into addresses, `http[s]://[user:password@]host[:port]/path?query`.

    Both questions are asked at each attempt, on the thread that delivers, so they are answered at
    once from what is known; `run` is where to wait. None leaves the endpoint to what is built in.
    Where no address is known raise `Unresolved`: the message waits for its next attempt, and the
    subscription is not slowed. Anything else that is raised means the same, and is logged. An
    address without credentials gets those of the endpoint.
    """

    def resolve(self, asked: Asked) -> str | None:
        """The one address of an ANYCAST subscription."""

    def resolve_all(self, asked: Asked) -> Sequence[str] | None:
        """Every address of a BROADCAST subscription; none at all: there is nobody yet."""

    async def run(self) -> None:
        """Keep what the answers are made of fresh, on trio, until cancelled; or return at once."""


def open_resolver(name: str, context: ResolverContext) -> EndpointResolver | None:
    """The configured resolver; None when `name` is "". Raises StartupError."""
    if not name:
        return None
    resolver: EndpointResolver = load_plugin(
        name, context, field=_FIELD, noun="resolver", parts=("resolve", "resolve_all", "run")
    )
    return resolver
