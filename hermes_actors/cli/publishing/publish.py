"""`hermes publish`: publishes one message from the command line, or one for each line of input."""

import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hermes_actors.cli.administration.arguments import TopicArgument
from hermes_actors.cli.command_line.credentials import authorization, tls_context
from hermes_actors.cli.command_line.failures import CommandFailed, UsageWrong
from hermes_actors.cli.command_line.options import (
    PUBLISH_URL_DEFAULT,
    Output,
    OutputOption,
    PublishUrlOption,
    examples,
)
from hermes_actors.cli.command_line.plain import PlainCommand
from hermes_actors.cli.connection.management import checked_url, quoted
from hermes_actors.cli.publishing.lines import (
    KeyOf,
    header_value,
    messages_of_lines,
    only,
    open_lines,
)
from hermes_actors.cli.publishing.publisher import (
    BulkPublisher,
    OutgoingMessage,
    PublishPlan,
    PublishResult,
    Unreachable,
    percentile,
)
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import SystemClock, system_rng

_ERRORS_SHOWN_MAX = 10
_LATENCIES_MAX = 1_000_000

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")


@app.command(
    cls=PlainCommand,
    epilog=examples(
        """hermes publish shop.orders '{"id": 1, "total": 9.5}'""",
        "hermes publish shop.orders --file order.json --key customer-7",
        "hermes publish shop.orders --lines orders.ndjson.gz --key-field customer.id",
        "tail -f orders.log | hermes publish shop.orders --output json",
    ),
)
def publish(
    topic: TopicArgument,
    message: Annotated[
        str | None,
        typer.Argument(
            metavar="MESSAGE", help="The message. Without it, or with '-': each line of stdin."
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="One message: the file's content.")
    ] = None,
    lines: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Many messages, one per line; .gz is unpacked."),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Partition-Key of all messages.")
    ] = None,
    key_field: Annotated[
        str | None,
        typer.Option("--key-field", metavar="FIELD", help="Partition-Key from a JSON field."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME:VALUE", help="A request header; repeatable."),
    ] = None,
    content_type: Annotated[str, typer.Option(metavar="TYPE")] = "application/json",
    connections: Annotated[
        int, typer.Option(min=1, max=1_000, metavar="N", help="Concurrent requests.")
    ] = 8,
    retries: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Retries after 503, 429, a time-out or a lost connection; may duplicate.",
        ),
    ] = 3,
    timeout_s: Annotated[
        float, typer.Option("--timeout-s", min=0.01, metavar="S", help="Time-out of each attempt.")
    ] = 10.0,
    publish_url: PublishUrlOption = PUBLISH_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Publish messages. Their ids go to stdout. Exit code 1 if not all were accepted."""
    quoted(topic)
    shown = authorization()
    plan = PublishPlan(
        url=checked_url(publish_url, "--publish-url", PUBLISH_URL_DEFAULT),
        topic=topic,
        connections=connections,
        retries=retries,
        timeout_s=timeout_s,
        headers=[("Content-Type", header_value(content_type, "--content-type"))]
        + [_header(text) for text in header or []]
        + ([("Authorization", shown)] if shown else []),
        tls=tls_context(),
    )
    messages = _source(message, file, lines, KeyOf(key, key_field))
    report = Report(topic, output)
    guest.run(_run, plan, messages, report)
    report.finish()


def _source(
    message: str | None, file: Path | None, lines: str | None, keys: KeyOf
) -> AsyncGenerator[OutgoingMessage, None]:
    """Return the messages of the options. Raises UsageWrong."""
    if sum(each is not None for each in (message, file, lines)) > 1:
        raise UsageWrong("MESSAGE, --file and --lines exclude each other; give one")
    if file is not None:
        try:
            body = file.read_bytes()
        except OSError as error:
            raise UsageWrong(f"--file {file}: cannot be read: {error.strerror}") from error
        return only(OutgoingMessage(1, body, keys.key(body, 1)))
    if message is not None and message != "-":
        body = message.encode("utf-8", "surrogateescape")
        return only(OutgoingMessage(1, body, keys.key(body, 1)))
    if message is None and lines is None and sys.stdin.isatty():
        raise UsageWrong(
            "nothing to publish: give MESSAGE, --file or --lines, or pipe lines in "
            "('-' reads them from the terminal)"
        )
    return messages_of_lines(open_lines(lines or "-"), keys)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
        raise UsageWrong(f"--header '{text}': expected Name:value, for example Trace-Id:42")
    return name, header_value(value.strip(), "--header")


async def _run(
    plan: PublishPlan, messages: AsyncGenerator[OutgoingMessage, None], report: "Report"
) -> None:
    clock = SystemClock()
    began_s = clock.monotonic_s()
    publisher = BulkPublisher(plan, report.take, clock, system_rng())
    try:
        await publisher.run(messages)
        if publisher.is_cut_short:
            report.failure = (
                "stopped: every message would be refused for the same reason; the rest was not sent"
            )
    except Unreachable as error:
        report.failure = (
            f"cannot reach {plan.url}: {error}; start a node with 'hermes dev', or name another "
            "with --publish-url URL or HERMES_PUBLISH_URL"
        )
    except CommandFailed as failure:
        report.failure = failure.message
    report.seconds = clock.monotonic_s() - began_s


class Report:
    """Prints outcomes as they arrive, and collects the summary."""

    def __init__(self, topic: str, output: Output) -> None:
        self._topic = topic
        self._output = output
        self._latencies_ms: list[float] = []
        self._accepted = 0
        self._kept = 0
        self._held = 0
        self._refused = 0
        self._retried = 0
        self.failure = ""
        self.seconds = 0.0

    def take(self, outcome: PublishResult) -> None:
        """Print and count one outcome."""
        self._retried += outcome.attempts > 1
        if outcome.is_accepted:
            self._accepted += 1
            self._kept += outcome.is_kept
            self._held += outcome.is_in_memory
            if len(self._latencies_ms) < _LATENCIES_MAX:
                self._latencies_ms.append(outcome.latency_ms)
        else:
            self._refused += 1
        self._print(outcome)

    def _print(self, outcome: PublishResult) -> None:
        if self._output is Output.JSON:
            fields = {"topic": self._topic, **msgspec.to_builtins(outcome)}
            print(json.dumps({**fields, "isKept": outcome.is_kept}, ensure_ascii=False))
        elif outcome.is_accepted:
            print(outcome.message_id)
        elif self._refused <= _ERRORS_SHOWN_MAX:
            print(f"hermes: message {outcome.number}: {_why(outcome)}", file=sys.stderr)
            if self._refused == _ERRORS_SHOWN_MAX:
                print("hermes: further errors are only counted", file=sys.stderr)

    def finish(self) -> None:
        """Print the summary on stderr. Raises CommandFailed unless every message was accepted."""
        sys.stdout.flush()
        latencies = sorted(self._latencies_ms)
        rate = self._accepted / self.seconds if self.seconds > 0 else 0.0
        kept = f" ({self._kept} kept on the node's disk, sent later)" if self._kept else ""
        kept += f" ({self._held} in memory only, lost with the node)" if self._held else ""
        summary = (
            f"accepted {self._accepted}{kept}, not accepted {self._refused}, "
            f"retried {self._retried} in {self.seconds:.2f} s ({rate:.0f}/s)"
        )
        if latencies:
            summary += (
                f"; latency p50 {percentile(latencies, 50):.1f}, "
                f"p99 {percentile(latencies, 99):.1f}, max {percentile(latencies, 100):.1f} ms"
            )
        print(summary, file=sys.stderr)
        if self.failure:
            raise CommandFailed(self.failure)
        if self._refused:
            raise CommandFailed(f"{self._refused} message(s) were not accepted")


def _why(outcome: PublishResult) -> str:
    if outcome.status == 0:
        return f"no answer: {outcome.error}; it may have been stored nevertheless"
    if outcome.status < 300:
        return f"answered with {outcome.status}: {outcome.error}"
    return f"refused with {outcome.status}{': ' if outcome.error else ''}{outcome.error}"
