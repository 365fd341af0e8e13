"""`hermes subscription test`: one made-up message, pushed now; request and answer are shown."""

import base64
from typing import Any

import typer

from hermes_actors.cli.administration.arguments import SubscriptionArgument, TopicArgument
from hermes_actors.cli.administration.resource import subscription_path
from hermes_actors.cli.command_line.failures import CommandFailed
from hermes_actors.cli.command_line.options import Output, OutputOption
from hermes_actors.cli.command_line.plain import PlainGroup
from hermes_actors.cli.connection.asking import management_command
from hermes_actors.cli.connection.management import ManagementClient
from hermes_actors.cli.output.render import (
    counted,
    fields_of,
    parsed_object,
    printable,
    say,
    say_wrapped,
    show_answer,
)
from hermes_actors.cli.subscriptions.filter_test import FileOption, MessageOption, body_of

app = typer.Typer(cls=PlainGroup, rich_markup_mode="rich")


@management_command(
    app,
    "hermes subscription test shop.orders billing",
    'hermes subscription test shop.orders billing -m \'{"id":1,"total":9.5}\'',
    "hermes subscription test shop.orders billing --file order.json -o json",
    name="test",
)
def try_endpoint(
    client: ManagementClient,
    topic: TopicArgument,
    subscription: SubscriptionArgument,
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
    pushes = fields_of(found, "pushes")
    for push in pushes:
        _show_push(push)
    total = found.get("pushesTotal", len(pushes))
    if isinstance(total, int) and total > len(pushes):
        say(f"\nof {total} pushes the first {len(pushes)} are shown")


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
