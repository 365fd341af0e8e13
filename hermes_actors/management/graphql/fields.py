"""Fields whose values come from the parts of management.

An operation is executed in a thread, because reading and answering a document may take long. Each
field goes back to the loop, after the checks of the REST route that answers the same.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, Signature, signature
from typing import Annotated, Any

import strawberry
import trio
from msgspec import Meta, Struct

from hermes_actors.management.access.roles import Caller
from hermes_actors.management.access.table import rule_of
from hermes_actors.management.administration import Administration
from hermes_actors.management.http.answers import AnyRequest
from hermes_actors.management.http.gate import Gate
from hermes_actors.management.messages.tail import Tail
from hermes_actors.management.status.why import camel

CALLS: set[str] = set()
"""The names of all these fields."""

Resolver = Callable[..., Awaitable[Any]]
_BY_NAME = Parameter.KEYWORD_ONLY
_FIRST = [Parameter("root", _BY_NAME), Parameter("info", _BY_NAME, annotation=strawberry.Info)]


class Request(Struct, frozen=True, rename="camel"):
    """The body of a request."""

    query: Annotated[str, Meta(min_length=1, max_length=16_384)]
    variables: dict[str, Any] | None = None
    operation_name: str | None = None


@dataclass
class Operation:
    """What the fields of one operation share. `document` is set once it has been read; `tail`, once
    a subscription of messages is open; and `message` while one of them is shown.
    """

    gate: Gate
    parts: Administration
    request: AnyRequest
    caller: Caller
    asked: Request
    document: Any = None
    tail: Tail | None = None
    message: dict[str, Any] | None = None


def field(route: str, gives: Any, *of: str, **takes: Any) -> Callable[[Resolver], Any]:
    """Define a field of type `gives`, for those who may call this route.

    The function is a trio coroutine. Its arguments: the operation, the values `of` the object that
    has the field, and the field's arguments, whose types are the annotations or in `takes`. Raises
    LookupError if the route has no rule.
    """
    rule = rule_of(*route.split(" "))

    def decorate(async_fn: Resolver) -> Any:
        action = f"ask for {async_fn.__name__} in GraphQL"

        def resolver(root: Any, info: Any, **given: Any) -> Any:
            operation, args = info.context, [root[each] for each in of]
            trio.from_thread.run(operation.gate.require, operation.request, rule, action)
            return trio.from_thread.run(partial(async_fn, operation, *args, **given))

        own = list(signature(async_fn).parameters.values())[1 + len(of) :]
        kinds = [takes.get(each.name, each.annotation) for each in own]
        own = [e.replace(kind=_BY_NAME, annotation=k) for e, k in zip(own, kinds, strict=True)]
        resolver.__dict__["__signature__"] = Signature([*_FIRST, *own])
        CALLS.add(camel(async_fn.__name__))
        about = " ".join((async_fn.__doc__ or "").split())
        # Nullable, so that a failing mutation leaves the others in the answer.
        return strawberry.field(resolver, graphql_type=gives | None, description=about)

    return decorate
