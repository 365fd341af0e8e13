"""Routes made of the coroutines that they call, whose parameters say what a request holds."""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import NoneType
from typing import Annotated, Any, get_origin

from litestar import HttpMethod, Response
from litestar import route as handles
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Body, FromPath, QueryParameter

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.bodies.decoding import json_object, json_value
from hermes_actors.management.http import answers
from hermes_actors.management.http.answers import Answer, AnyRequest
from hermes_actors.management.http.gate import Gate
from hermes_actors.management.http.openapi import TYPED

SUBSCRIPTION = "/topics/{topic:str}/subscriptions/{name:str}"

Add = Callable[..., HTTPRouteHandler]
"""`route` with its gate."""
JsonObject = Mapping[str, Any]
_BY_NAME = inspect.Parameter.KEYWORD_ONLY
Answering = Callable[[Awaitable[Any]], Awaitable[Answer]]
"""Awaits what was called, and makes an answer of what that returns or raises."""


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
}
"""The parameters that are given the request's body, and how it is read for them."""


def route(
    gate: Gate,
    where: str,
    call: Callable[..., Awaitable[Any]],
    summary: str = "",
    *,
    below: str = "",
    status: int = 200,
    or_status: int = 0,
    is_for_guests: bool = False,
    needs_metadata: bool = True,
    has_query: bool = True,
    answering: Answering | None = None,
    takes: Any = dict[str, Any],
    gives: Any = None,
    media_type: str = answers.JSON,
) -> HTTPRouteHandler:
    """The handler of `where`, a verb and a path `below` another: it awaits `call` in trio.

    `call` is given who calls, if its first parameter is a Caller; what stands in the path, in that
    order; the body, if it has a parameter of `_BODIES`, {} for none where that has a default; and
    all its other parameters from the query, by their names in camel case, if it `has_query`. What
    it returns is the answer as JSON with `status`; None is one without a body, and an answer is
    itself one.

    OpenAPI's `summary` is by default the first sentence of what `call` says of itself. What
    `is_for_guests` may be asked without credentials; what `needs_metadata` is refused until
    they have been read. OpenAPI describes that the route `takes` and `gives` values of these types
    (None: what `call` returns) as `media_type`, and that its status may be `or_status` too.
    """
    verb, _, path = where.partition(" ")
    path = below + path
    in_path = re.findall(r"\{(\w+):(\w+)", path)
    given = list(inspect.signature(call).parameters.values())
    takes_caller = bool(given) and given[0].annotation is Caller
    others = given[takes_caller + len(in_path) :]
    body = next((each for each in others if each.name in _BODIES), None)

    async def handler(request: AnyRequest, **found: Any) -> Answer | None:
        if body is not None:
            is_there = body.default is body.empty or await request.body()
            read = _BODIES[body.name]
            found[body.name] = read(await answers.body_of(request)) if is_there else {}
        args = [found.pop(each) for each, _ in in_path]
        target = partial(call, **{names.get(each, each): value for each, value in found.items()})
        if takes_caller:
            asked = gate.act(request, target, *args, takes_guests=is_for_guests)
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
    # Called as in the query: by this name the framework says what is wrong with one.
    names = {_camel(each.name): each.name for each in in_query}
    parameters += [
        each.replace(name=_camel(each.name), kind=_BY_NAME, annotation=_in_query(each))
        for each in in_query
    ]
    settings: dict[str, Any] = {
        "http_method": HttpMethod(verb),
        "summary": summary or _first_sentence(call),
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
    twin = handles(path, **settings, media_type=media_type, responses=responses)(
        _signed(typed, [*parameters, *data], returned)
    )
    answer = None if status == 204 else Answer
    return handles(path, **settings, opt={TYPED: twin})(
        _signed(handler, [request, *parameters], answer)
    )


def _signed(
    function: Callable[..., Awaitable[Any]], parameters: list[inspect.Parameter], returned: Any
) -> Callable[..., Awaitable[Any]]:
    """The function with a signature: Litestar gives what it asks for, and describes it."""
    signature = inspect.Signature(parameters, return_annotation=returned)
    function.__dict__["__signature__"] = signature
    function.__annotations__ = {each.name: each.annotation for each in parameters}
    function.__annotations__["return"] = returned
    return function


def _first_sentence(call: Callable[..., Any]) -> str:
    text = " ".join((call.__doc__ or "").split())
    return text.partition(". ")[0].removesuffix(".")


def _in_query(parameter: inspect.Parameter) -> Any:
    """The type of a parameter that stands in the query."""
    if get_origin(parameter.annotation) is Annotated:
        return parameter.annotation
    return Annotated[parameter.annotation, QueryParameter()]


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))
