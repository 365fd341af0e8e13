"""`hermes subscription filter-test|test`: filters and an endpoint tried with one message."""

import base64
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hermes_actors.cli.administration.arguments import TopicArgument, completed
from hermes_actors.cli.administration.resource import SUBSCRIPTION, subscription_path
from hermes_actors.cli.command_line.failures import CommandFailed, UsageWrong, warn
from hermes_actors.cli.command_line.options import Output, OutputOption
from hermes_actors.cli.command_line.plain import PlainGroup
from hermes_actors.cli.connection.asking import management_command
from hermes_actors.cli.connection.management import ManagementClient, quoted
from hermes_actors.cli.output.render import (
    counted,
    fields_of,
    parsed_object,
    printable,
    say,
    say_wrapped,
    show_answer,
)
from hermes_actors.cli.subscriptions.filter_options import FilterOption, filters_of

app = typer.Typer(cls=PlainGroup, rich_markup_mode="rich")

MessageOption = Annotated[
    str | None, typer.Option("--message", "-m", metavar="TEXT", help="The message's body.")
]
FileOption = Annotated[
    str | None, typer.Option("--file", metavar="FILE", help="The body is there; '-' reads stdin.")
]


def _show_result(answer: dict[str, Any]) -> None:
    reason = answer.get("errorMessage")
    say(printable(f"{answer.get('status')}: {reason}" if reason else str(answer.get("status"))))
    for warning in answer.get("warnings") or []:
        warn(printable(str(warning)))


@management_command(
    app,
    'hermes subscription filter-test shop.orders billing -m \'{"country":"PL"}\'',
    "hermes subscription filter-test shop.orders billing --file order.json",
    "hermes subscription filter-test shop.orders --file order.json --filter "
    "'jsonpath:$.country=PL|DE'",
    name="filter-test",
    show=_show_result,
)
def filter_test(
    client: ManagementClient,
    topic: TopicArgument,
    subscription: Annotated[
        str | None,
        typer.Argument(
            metavar="SUBSCRIPTION",
            help="Whose filters; not together with --filter.",
            autocompletion=completed("subscription"),
        ),
    ] = None,
    message: MessageOption = None,
    file: FileOption = None,
    filters: FilterOption = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME:VALUE", help="A header that was propagated."),
    ] = None,
) -> bytes:
    """Say whether a message passes filters: MATCHED, NOT_MATCHED, or ERROR with the reason."""
    if (subscription is None) is not bool(filters):
        raise UsageWrong("give either SUBSCRIPTION, whose filters are tried, or --filter")
    given = filters_of(filters)
    body = {
        "message": base64.b64encode(body_of(message, file)).decode(),
        "headers": dict(_header(each) for each in headers or []),
    }
    if subscription is not None:
        found = parsed_object(client.get(subscription_path(topic, subscription)))
        given = found.get("filters") or []
    return client.post(f"/filters/{quoted(topic)}", {**body, "filters": given})


def body_of(message: str | None, file: str | None) -> bytes:
    """The message's body that one of the two options gives. Raises UsageWrong."""
    if (message is None) is (file is None):
        raise UsageWrong("give the message's body: either --message TEXT or --file FILE")
    if message is not None:
        return message.encode()
    assert file is not None, "one of the two is given"
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise UsageWrong(f"--file {file}: cannot be read: {error.strerror}") from error


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not (name.strip() and colon):
        raise UsageWrong(f"--header '{text}': expected NAME:VALUE, for example 'Country: PL'")
    return name.strip(), value.strip()


@management_command(
    app,
    "hermes subscription test shop.orders billing",
    'hermes subscription test shop.orders billing -m \'{"id":1,"total":9.5}\'',
    "hermes subscription test shop.orders billing --file order.json -o json",
    name="test",
    arguments=SUBSCRIPTION.arguments,
)
def try_endpoint(
    client: ManagementClient,
    topic: str,
    subscription: str,
    message: MessageOption = None,
    file: FileOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Push one made-up message to the endpoint now, and show the request and its answer.

    The exit code is 1 unless the endpoint has taken it. Filters, rate and offsets play no part.
    """
    body = {}
    if message is not None or file is not None:
        body["message"] = base64.b64encode(body_of(message, file)).decode()
    content = client.post(f"{subscription_path(topic, subscription)}/test", body)
    show_answer(content, output, _show)
    found = parsed_object(content)
    if found.get("isDelivered") is not True:
        raise CommandFailed(
            f"subscription {subscription} of {topic}: the test was not delivered: "
            + printable(str(found.get("outcome")))
        )


def _show(found: dict[str, Any]) -> None:
    took = f"{found.get('tookMs')} ms"
    said = "delivered" if found.get("isDelivered") is True else "not delivered"
    say_wrapped(
        f"{said} from {found.get('datacenter')} {found.get('node')} in {took}: "
        f"{found.get('outcome')}"
    )
    for push in fields_of(found, "pushes"):
        _show_push(push)


def _show_push(push: dict[str, Any]) -> None:
    request, answer = push.get("request") or {}, push.get("answer")
    say("")
    _show_lines(">", f"{request.get('method')} {request.get('url')}", request)
    say("")
    if isinstance(answer, dict):
        _show_lines("<", f"{push.get('outcome')} after {push.get('tookMs')} ms", answer)
    else:
        say_wrapped(f"< no answer after {push.get('tookMs')} ms: {push.get('outcome')}")


def _show_lines(mark: str, first: str, part: dict[str, Any]) -> None:
    say(f"{mark} {printable(first)}")
    for name, value in part.get("headers") or []:
        say(f"{mark} {printable(str(name))}: {printable(str(value))}")
    body, size = str(part.get("body", "")), part.get("bodyBytes", 0)
    if not size:
        return
    say(mark)
    for line in body.splitlines() or [""]:
        say(f"{mark} {printable(line)}")
    if isinstance(size, int) and size > len(body.encode()):
        say(f"{mark} ... of {counted(size, 'byte')}")
