"""`hermes subscription filter-test|test`: try filters or an endpoint with one message."""

import base64
import sys
from pathlib import Path
from typing import Annotated

import typer

from hermes_actors.cli.administration.arguments import (
    SubscriptionArgument,
    TopicArgument,
    completed,
)
from hermes_actors.cli.administration.resource import subscription_path
from hermes_actors.cli.command_line.failures import CommandFailed, UsageWrong, warn
from hermes_actors.cli.connection.asking import management, management_command
from hermes_actors.cli.connection.management import quoted
from hermes_actors.cli.output.render import (
    Fields,
    counted,
    fields_of,
    parsed_object,
    printable,
    say,
    show_answer,
)
from hermes_actors.cli.subscriptions.filter_options import FilterOption, filters_of

app = typer.Typer()

MessageOption = Annotated[
    str | None, typer.Option("--message", "-m", metavar="TEXT", help="The message's body.")
]
FileOption = Annotated[
    str | None, typer.Option("--file", metavar="FILE", help="File with the body; '-' reads stdin.")
]


@management_command(
    app,
    'hermes subscription filter-test shop.orders billing -m \'{"country":"PL"}\'',
    "hermes subscription filter-test shop.orders billing --file order.json",
    "hermes subscription filter-test shop.orders --file order.json --filter "
    "'jsonpath:$.country=PL|DE'",
)
def filter_test(
    topic: TopicArgument,
    subscription: Annotated[
        str | None,
        typer.Argument(
            metavar="SUBSCRIPTION",
            help="The subscription with the filters; not with --filter.",
            autocompletion=completed("subscription"),
        ),
    ] = None,
    message: MessageOption = None,
    file: FileOption = None,
    filters: FilterOption = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME:VALUE", help="A propagated header."),
    ] = None,
) -> None:
    """Test whether a message passes filters: MATCHED, NOT_MATCHED, or ERROR with the reason."""
    if (subscription is None) is not bool(filters):
        raise UsageWrong("give either SUBSCRIPTION, to test its filters, or --filter")
    given = filters_of(filters)
    body = {
        "message": base64.b64encode(body_of(message, file)).decode(),
        "headers": dict(_header(each) for each in headers or []),
    }
    if subscription is not None:
        found = parsed_object(management().get(subscription_path(topic, subscription)))
        given = found.get("filters") or []
    content = management().post(f"/filters/{quoted(topic)}", {**body, "filters": given})
    show_answer(content, _show_result)


def _show_result(found: Fields) -> None:
    reason = found.get("errorMessage")
    say(f"{found.get('status')}: {reason}" if reason else str(found.get("status")))
    for warning in found.get("warnings") or []:
        warn(printable(str(warning)))


def body_of(message: str | None, file: str | None) -> bytes:
    """Return the message's body from one of the two options. Raises UsageWrong."""
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
)
def try_endpoint(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    message: MessageOption = None,
    file: FileOption = None,
) -> None:
    """Push a test message to the endpoint now, and show the request and the answer.

    Exit code 1 unless the endpoint accepts it. Filters, rate and offsets are not involved.
    """
    body = {}
    if message is not None or file is not None:
        body["message"] = base64.b64encode(body_of(message, file)).decode()
    content = management().post(f"{subscription_path(topic, subscription)}/test", body)
    show_answer(content, _show)
    found = parsed_object(content)
    if found.get("isDelivered") is not True:
        raise CommandFailed(
            f"subscription {subscription} of {topic}: the test was not delivered: "
            + printable(str(found.get("outcome")))
        )


def _show(found: Fields) -> None:
    said = "delivered" if found.get("isDelivered") is True else "not delivered"
    say(
        f"{said} from {found.get('datacenter')} {found.get('node')} in {found.get('tookMs')} ms: "
        f"{found.get('outcome')}"
    )
    for push in fields_of(found, "pushes"):
        request, answer = push.get("request") or {}, push.get("answer")
        _show_lines(">", f"{request.get('method')} {request.get('url')}", request)
        ended = f"after {push.get('tookMs')} ms"
        if isinstance(answer, dict):
            _show_lines("<", f"{push.get('outcome')} {ended}", answer)
        else:
            say(f"\n< no answer {ended}: {push.get('outcome')}")


def _show_lines(mark: str, first: str, part: Fields) -> None:
    say(f"\n{mark} {printable(first)}")
    for name, value in part.get("headers") or []:
        say(f"{mark} {name}: {value}")
    body, size = str(part.get("body", "")), part.get("bodyBytes", 0)
    if not size:
        return
    say(mark)
    for line in body.splitlines() or [""]:
        say(f"{mark} {line}")
    if size > len(body.encode()):
        say(f"{mark} ... of {counted(size, 'byte')}")
