"""`hermes pull`: a client of a pull subscription. Prints messages, or runs a command for each."""

import base64
import os
import shlex
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
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
    PulledMessage,
    ReceivedMessage,
    Settled,
)

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")

T = TypeVar("T", Pulled, Settled)

_AT_ONCE = 100
_WAIT_MS, _LAST_WAIT_MS = 20_000, 1_000
_PAUSE_S = 2.0
_EXTENDED_S, _EXTEND_EACH_S = 30, 10.0


class _Line(msgspec.Struct, rename="camel"):
    """A line of the output."""

    delivery_attempt: int
    message: PulledMessage


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
            help="Run it for each message, the body on its stdin. Exit code 0 acknowledges; any "
            "other gives the message back.",
        ),
    ] = None,
    most: Annotated[
        int | None, typer.Option("--max", min=1, metavar="N", help="End after N messages.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--once", help="Wait for more, or end when none is there.")
    ] = True,
) -> None:
    """Pull messages in the DC of this management API: print them as NDJSON, and acknowledge them.

    Ctrl-C ends it; messages that were not printed are given back.
    """
    words = None if command is None else _words(command)
    client = _Client(subscription_path(topic, subscription), words, is_once=not follow)
    at_once = _AT_ONCE if words is None else 1
    left = most
    ask = _asking_on() if follow else _ask
    try:
        while left is None or left > 0:
            count = at_once if left is None else min(at_once, left)
            messages = ask(partial(client.pull, count))
            if not messages and not follow:
                break
            if left is not None:
                left -= len(messages)
            client.take(messages)
    finally:
        client.end()
    if client.failed:
        raise CommandFailed(f"messages given back because the command failed: {client.failed}")


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageWrong(f"--exec '{command}': {error}") from error
    if not words:
        raise UsageWrong("--exec needs a command, for example --exec 'python handle.py'")
    return words


def _ask(call: Callable[[], list[ReceivedMessage]]) -> list[ReceivedMessage]:
    return call()


def _asking_on() -> Callable[[Callable[[], list[ReceivedMessage]]], list[ReceivedMessage]]:
    """As a worker does: a failure of the first call ends the command, a later one is repeated."""
    has_answered = False

    def ask(call: Callable[[], list[ReceivedMessage]]) -> list[ReceivedMessage]:
        nonlocal has_answered
        while True:
            try:
                found = call()
            except CommandFailed as failure:
                is_final = isinstance(failure, Refusal) and failure.status < 500
                if is_final or not has_answered:
                    raise
                warn(f"{failure.message}; trying again")
                trio.run(trio.sleep, _PAUSE_S)
            else:
                has_answered = True
                return found

    return ask


class _Client:
    """Takes messages of one subscription. With `is_once`, messages whose command failed are given
    back at the end, so that they do not come again before.
    """

    def __init__(self, path: str, words: list[str] | None, *, is_once: bool) -> None:
        self._path = path
        self._words = words
        self._is_once = is_once
        self._kept: list[str] = []
        self.failed = 0

    def pull(self, count: int) -> list[ReceivedMessage]:
        """The next messages. Empty if none has come in time."""
        wait_ms = _LAST_WAIT_MS if self._is_once else _WAIT_MS
        asked = {"maxMessages": count, "waitMs": wait_ms}
        answer = management().post(f"{self._path}/pull", asked)
        return _decoded(answer, Pulled).received_messages

    def take(self, messages: Sequence[ReceivedMessage]) -> None:
        """Print the messages and acknowledge them, or run the command for each."""
        left = deque(messages)
        try:
            if self._words is None:
                done = []
                while left:
                    sys.stdout.buffer.write(_line(left[0]))
                    done.append(left.popleft().ack_id)
                sys.stdout.buffer.flush()
                self._settle("ack", done)
                return
            while left:
                is_done = self._run(self._words, left[0])
                ack_id = left.popleft().ack_id
                self.failed += not is_done
                if is_done or not self._is_once:
                    self._settle("ack" if is_done else "nack", [ack_id])
                else:
                    self._kept.append(ack_id)
        except (KeyboardInterrupt, OSError):
            self._settle_quietly([each.ack_id for each in left])
            raise

    def end(self) -> None:
        """Give back the messages whose command failed."""
        for at in range(0, len(self._kept), _AT_ONCE):
            self._settle_quietly(self._kept[at : at + _AT_ONCE])

    def _settle_quietly(self, ids: list[str]) -> None:
        with suppress(CommandFailed):
            # If this fails, they come again after their deadline.
            self._settle("nack", ids)

    def _settle(self, verb: str, ids: list[str], **more: int) -> None:
        if not ids:
            return
        answer = management().post(f"{self._path}/{verb}", {"ackIds": ids, **more})
        refused = _decoded(answer, Settled).refused
        if refused:
            warn(f"{len(refused)} of {len(ids)} not taken, the first: {refused[0].message}")

    def _run(self, words: list[str], received: ReceivedMessage) -> bool:
        """Run the command for one message; its deadline is extended meanwhile. True for success."""
        message = received.message
        environment = os.environ | {
            "HERMES_MESSAGE_ID": message.message_id,
            "HERMES_DELIVERY_ATTEMPT": str(received.delivery_attempt),
            "HERMES_ORDERING_KEY": message.ordering_key,
        }
        body: bytes | None = _body(message)
        with subprocess.Popen(words, stdin=subprocess.PIPE, env=environment) as process:  # noqa: S603
            while True:
                try:
                    process.communicate(body, timeout=_EXTEND_EACH_S)
                except subprocess.TimeoutExpired:
                    body = None
                    self._settle("extend", [received.ack_id], ackDeadlineSeconds=_EXTENDED_S)
                else:
                    break
        if process.returncode:
            warn(f"{message.message_id}: exit code {process.returncode}; it will come again")
        return process.returncode == 0


def _decoded(answer: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as error:
        shown = printable(answer[:200].decode("utf-8", "replace"))
        raise CommandFailed(f"the server's answer is not understood: {error}: {shown}") from error


def _line(received: ReceivedMessage) -> bytes:
    shown = msgspec.json.encode(_Line(received.delivery_attempt, received.message))
    # The body may be spread over several lines.
    return msgspec.json.format(shown, indent=-1) + b"\n"


def _body(message: PulledMessage) -> bytes:
    if isinstance(message.json, msgspec.Raw):
        return bytes(message.json)
    return b"" if message.data is None else base64.b64decode(message.data)
