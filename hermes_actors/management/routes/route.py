"""Creates a route from the coroutine that it calls: the parameters define the request."""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import NoneType
from typing import Annotated, Any, get_origin

from litestar import HttpMethod, Response
from litestar import route as handles
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Operation, RequestBody
from litestar.params import Body, FromPath, QueryParameter

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.access.table import rule_of
from hermes_actors.management.bodies.decoding import json_object, json_value
from hermes_actors.management.http import answers
from hermes_actors.management.http.answers import Answer, AnyRequest
from hermes_actors.management.http.gate import Gate
from hermes_actors.management.http.openapi import TYPED

SUBSCRIPTION = "/topics/{topic:str}/subscriptions/{name:str}"

Add = Callable[..., HTTPRouteHandler]
"""`route`, with its first argument given."""
JsonObject = Mapping[str, Any]
_BY_NAME = inspect.Parameter.KEYWORD_ONLY
Answering = Callable[[Awaitable[Any]], Awaitable[Answer]]
"""Awaits the call, and makes an answer from its result or error."""


@dataclass
class OptionalBody(Operation):
    """Describes an operation whose request may have no body."""

    def __post_init__(self) -> None:
        """The framework describes every body as required."""
        assert isinstance(self.request_body, RequestBody)
        self.request_body.required = False


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise Refused("The schema must be UTF-8", ErrorCode.FORMAT_ERROR) from error


_BODIES: dict[str, Callable[[bytes], Any]] = {
    "body": json_object,
    "patch": json_object,
    "state": json_value,
    "schema": _text,
    "lines": bytes,
}
"""The names of parameters for the request's body, and how it is decoded."""


def route(
    gate: Gate,
    where: str,
    call: Callable[..., Awaitable[Any]],
    summary: str = "",
    *,
    below: str = "",
    status: int = 200,
    or_status: int = 0,
    needs_metadata: bool = True,
    has_query: bool = True,
    answering: Answering | None = None,
    takes: Any = dict[str, Any],
    gives: Any = None,
    media_type: str = answers.JSON,
) -> HTTPRouteHandler:
    """The handler of `where`, a verb and a path, which is `below` another path. It awaits `call` in
    trio.

    The arguments of `call`: the caller, if its first parameter is a Caller; the path's parameters,
    in order; the body, if a parameter's name is in `_BODIES` ({} if the body is empty and the
    parameter has a default); and all other parameters from the query, by their names in camel case,
    if it `has_query`. Its result becomes the answer, as JSON with `status`; None has no body, and
    an Answer is returned as it is. `answering` replaces this.

    `needs_metadata`: refused until they have been read.

    For OpenAPI only: `summary`, by default the first sentence of the docstring of `call`; `takes`
    and `gives`, the types of the bodies (`gives` None: the return type of `call`); `media_type`;
    and `or_status`, a second possible status.
    """
    verb, _, path = where.partition(" ")
    path = below + path
    in_path = re.findall(r"\{(\w+):(\w+)", path)
    rule = rule_of(verb, path)
    given = list(inspect.signature(call).parameters.values())
    takes_caller = bool(given) and given[0].annotation is Caller
    others = given[takes_caller + len(in_path) :]
    body = next((each for each in others if each.name in _BODIES), None)

    needs_body = body is None or body.default is body.empty

    async def handler(request: AnyRequest, **found: Any) -> Answer | None:
        if body is not None:
            is_there = needs_body or await request.body()
            read = _BODIES[body.name]
            found[body.name] = read(await answers.body_of(request)) if is_there else {}
        args = [found.pop(each) for each, _ in in_path]
        target = partial(call, **{names.get(each, each): value for each, value in found.items()})
        if takes_caller:
            asked = gate.act(request, target, *args)
        elif rule.changes:
            # The caller is the author of the change.
            asked = gate.act(request, lambda _, *args: target(*args), *args)
        else:
            asked = gate.read(target, *args, needs_metadata=needs_metadata)
        if answering is not None:
            return await answering(asked)
        result = await asked
        if result is None:
            return None if status == 204 else answers.empty_answer(status)
        return result if isinstance(result, Response) else answers.json_answer(result, status)

    parameters = [
        inspect.Parameter(
            each, _BY_NAME, annotation=FromPath[int] if kind == "int" else FromPath[str]
        )
        for each, kind in in_path
    ]
    in_query = [each for each in others if each is not body and has_query]
    # In camel case as in the query, because the framework's errors use these names.
    names = {_camel(each.name): each.name for each in in_query}
    parameters += [
        each.replace(name=_camel(each.name), kind=_BY_NAME, annotation=_in_query(each))
        for each in in_query
    ]
    settings: dict[str, Any] = {
        "http_method": HttpMethod(verb),
        "summary": summary or _sentences(call)[0],
        "status_code": status,
    }

    async def typed(**_: Any) -> Any:
        raise NotImplementedError("it is described only")

    request = inspect.Parameter("request", _BY_NAME, annotation=AnyRequest)
    taken = Annotated[takes, Body()]
    data = [] if body is None else [inspect.Parameter("data", _BY_NAME, annotation=taken)]
    returned = gives or inspect.signature(call).return_annotation
    if status == 204 or returned is NoneType:
        returned = None
    responses = None
    if or_status:
        other = None if or_status == 204 else returned
        responses = {or_status: ResponseSpec(other, generate_examples=False)}
    twin = handles(
        path,
        **settings,
        description=" ".join(filter(_tells, _sentences(call)[1:])) or None,
        media_type=media_type,
        responses=responses,
        operation_class=Operation if needs_body else OptionalBody,
    )(_signed(typed, [*parameters, *data], returned))
    answer = None if status == 204 else Answer
    return handles(path, **settings, opt={TYPED: twin})(
        _signed(handler, [request, *parameters], answer)
    )


def _signed(
    function: Callable[..., Awaitable[Any]], parameters: list[inspect.Parameter], returned: Any
) -> Callable[..., Awaitable[Any]]:
    """Give the function a signature, from which Litestar passes arguments and describes it."""
    signature = inspect.Signature(parameters, return_annotation=returned)
    function.__dict__["__signature__"] = signature
    function.__annotations__ = {each.name: each.annotation for each in parameters}
    function.__annotations__["return"] = returned
    return function


def _sentences(call: Callable[..., Any]) -> list[str]:
    """The docstring's sentences, the first one without its full stop."""
    first, *others = re.split(r"(?<=\.) ", " ".join((call.__doc__ or "").split()))
    return [first.removesuffix("."), *(each.removeprefix("Raises ") for each in others)]


def _tells(sentence: str) -> bool:
    """True for a sentence that says something to the users of a route."""
    return not sentence.startswith(("Refused.", "Refused and", "None", "True", "False", "A trio"))


def _in_query(parameter: inspect.Parameter) -> Any:
    """The annotation of a parameter from the query."""
    if get_origin(parameter.annotation) is Annotated:
        return parameter.annotation
    return Annotated[parameter.annotation, QueryParameter()]


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))
