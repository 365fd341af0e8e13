"""`hermes pull`: a client of a pull subscription. Prints messages, or runs a command for each."""

import base64
import os
import shlex
import subprocess
import sys
from contextlib import suppress
from typing import Annotated, TypeVar

import msgspec
import trio
import typer

from hermes_actors.cli.administration.arguments import SubscriptionArgument, TopicArgument
from hermes_actors.cli.administration.resource import subscription_path
from hermes_actors.cli.command_line.failures import CommandFailed, UsageWrong, warn
from hermes_actors.cli.connection.asking import management, management_command
from hermes_actors.cli.connection.management import Refusal
from hermes_actors.cli.output.render import printable
from hermes_actors.model.pulling import (
    Pulled,
    ReceivedMessage,
    Settled,
)

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")

T = TypeVar("T", Pulled, Settled)

_AT_ONCE = 100
_WAIT_MS, _LAST_WAIT_MS = 20_000, 1_000
_PAUSE_S = 2.0
_LATER_MS = 60_000
_EXTENDED_S, _EXTEND_EACH_S = 30, 10.0


@management_command(
    app,
    "hermes pull shop.orders worker",
    "hermes pull shop.orders worker --once | jq .message.json",
    "hermes pull shop.orders worker --exec 'python handle.py'",
)
def pull(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    command: Annotated[
        str | None,
        typer.Option(
            "--exec",
            metavar="COMMAND",
            help="Run this command for each message, with the body on stdin. Exit code 0 "
            "acknowledges the message; any other gives it back.",
        ),
    ] = None,
    most: Annotated[
        int | None, typer.Option("--max", min=1, metavar="N", help="Stop after N messages.")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow/--once", help="Wait for more messages, or stop when there are none."
        ),
    ] = True,
) -> None:
    """Pull messages in the DC of this management API: print them as NDJSON, and acknowledge them.

    Ctrl-C ends it; messages that were not printed are given back.
    """
    words = [] if command is None else _words(command)
    path, left, is_first, failed = subscription_path(topic, subscription), most, True, 0
    while left is None or left > 0:
        count = 1 if words else min(_AT_ONCE, left or _AT_ONCE)
        try:
            messages = _pull(path, count, _WAIT_MS if follow else _LAST_WAIT_MS)
        except CommandFailed as failure:
            is_final = isinstance(failure, Refusal) and failure.status < 500
            if is_first or is_final or not follow:
                raise
            warn(f"{failure.message}; trying again")
            trio.run(trio.sleep, _PAUSE_S)
            continue
        is_first = False
        if not messages and not follow:
            break
        left = None if left is None else left - len(messages)
        try:
            if not words:
                _print(path, messages)
            elif messages and not _run(path, words, messages[0]):
                failed += 1
                # With --once it must not come again soon.
                delay = {} if follow else {"delayMs": _LATER_MS}
                _settle(path, "nack", messages, **delay)
        except (KeyboardInterrupt, OSError):
            with suppress(CommandFailed):
                _settle(path, "nack", messages, delayMs=0)
            raise
    if failed:
        raise CommandFailed(f"messages given back because the command failed: {failed}")


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    if not words:
        raise UsageWrong(
            f"--exec '{command}' is not a command; write for example 'python handle.py'"
        )
    return words


def _pull(path: str, count: int, wait_ms: int) -> list[ReceivedMessage]:
    answer = management().post(f"{path}/pull", {"maxMessages": count, "waitMs": wait_ms})
    return _decoded(answer, Pulled).received_messages


def _print(path: str, messages: list[ReceivedMessage]) -> None:
    """Print the messages, and acknowledge them."""
    for each in messages:
        line = {"deliveryAttempt": each.delivery_attempt, "message": each.message}
        # The body may be spread over several lines.
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(line), indent=-1) + b"\n")
    sys.stdout.buffer.flush()
    _settle(path, "ack", messages)


def _settle(path: str, verb: str, messages: list[ReceivedMessage], **more: int) -> None:
    ids = [each.ack_id for each in messages]
    if not ids:
        return
    refused = _decoded(
        management().post(f"{path}/{verb}", {"ackIds": ids, **more}), Settled
    ).refused
    if refused:
        warn(f"{len(refused)} of {len(ids)} were refused; the first: {refused[0].message}")


def _run(path: str, words: list[str], received: ReceivedMessage) -> bool:
    """Run the command for one message, and acknowledge it. Its deadline is extended meanwhile.
    False if the command fails.
    """
    message = received.message
    environment = os.environ | {
        "HERMES_MESSAGE_ID": message.message_id,
        "HERMES_DELIVERY_ATTEMPT": str(received.delivery_attempt),
        "HERMES_ORDERING_KEY": message.ordering_key,
    }
    body: bytes | None = base64.b64decode(message.data or "")
    if isinstance(message.json, msgspec.Raw):
        body = bytes(message.json)
    # The subscription's deadline may be shorter than the time to the next extension.
    _settle(path, "extend", [received], ackDeadlineSeconds=_EXTENDED_S)
    with subprocess.Popen(words, stdin=subprocess.PIPE, env=environment) as process:  # noqa: S603
        while process.returncode is None:
            try:
                process.communicate(body, timeout=_EXTEND_EACH_S)
            except subprocess.TimeoutExpired:
                body = None
                _settle(path, "extend", [received], ackDeadlineSeconds=_EXTENDED_S)
    if process.returncode:
        warn(f"{message.message_id}: exit code {process.returncode}; it will be delivered again")
        return False
    _settle(path, "ack", [received])
    return True


def _decoded(answer: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as error:
        shown = printable(answer[:200].decode("utf-8", "replace"))
        raise CommandFailed(f"the server's answer cannot be read: {error}: {shown}") from error
