"""The plug-in seam for resolvers, which turn an endpoint into addresses to push to.

A resolver is named in `consumers.recipients.resolver` as `module:function`. The function is called
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
    """What a resolver may use: the name of its datacentre, and the node's clock."""

    dc: str
    clock: Clock


class Asked(Struct, frozen=True):
    """One request to a resolver. `subscription` is `group.topic$name`; `endpoint` is the
    subscription's, without credentials; `metadata` is its endpointAddressResolverMetadata,
    read-only.
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

    Both methods are called at each attempt, on the delivering thread, so they must answer at once
    from what they know; wait in `run` only. None means that the built-in rules apply. Raise
    `Unresolved` if no address is known: the message waits for its next attempt, and the rate is not
    lowered. Any other exception means the same, and is logged. An address without credentials gets
    those of the endpoint.
    """

    def resolve(self, asked: Asked) -> str | None:
        """The address for an ANYCAST subscription."""

    def resolve_all(self, asked: Asked) -> Sequence[str] | None:
        """All addresses for a BROADCAST subscription; an empty sequence if there is none yet."""

    async def run(self) -> None:
        """Keep the known addresses fresh, on trio, until cancelled; or return at once."""


def open_resolver(name: str, context: ResolverContext) -> EndpointResolver | None:
    """The configured resolver; None if `name` is empty. Raises StartupError."""
    if not name:
        return None
    resolver: EndpointResolver = load_plugin(
        name, context, field=_FIELD, noun="resolver", parts=("resolve", "resolve_all", "run")
    )
    return resolver
