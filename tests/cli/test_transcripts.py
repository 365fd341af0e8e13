"""Command lines against a server that answers as a transcript says: what is shown and sent.

A transcript's lines are the answers (`GET /path -> 200 BODY`, with a header `200 (NAME: VALUE)
BODY`; equal requests are answered in their order), the command (`$ hermes …`), then what it does:
lines of stdout, `! ` and lines of stderr, `> ` and requests that change something, `exit N`.
`HERMES_TRANSCRIPTS=write` writes them anew.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

FOLDER = Path(__file__).parent / "transcripts"
ANSWER = re.compile(r"((?:GET|POST|PUT|DELETE) \S+) -> (\d+)(?: \((\S+): (\S+)\))? ?(.*)")

SHOWN = ("hermes-change-reason", "partition-key", "trace-id")
VARYING = {
    r" in [0-9.]+ s \([0-9]+/s\)": " in S s",
    r"; latency .*": "; latency",
    r'"(sentMs|latencyMs)": [0-9.]+': r'"\1": 0',
}
"""What is never twice the same."""


def sections() -> Iterator[tuple[str, str, str]]:
    """File, title and lines of each transcript."""
    for file in sorted(FOLDER.glob("*.txt")):
        for section in file.read_text().split("\n== ")[1:]:
            title, _, lines = section.partition("\n")
            yield file.stem, title, lines.strip("\n")


def played(lines: str, hermes: Callable[..., Result], server: Any) -> Iterator[str]:
    """The same transcript, as it is now."""
    answers: dict[str, list[tuple[int, object]]] = {}
    for line in lines.splitlines():
        if found := ANSWER.fullmatch(line):
            answers.setdefault(found[1], []).append((int(found[2]), found[5].encode()))
            if found[3]:
                server.headers[int(found[2])] = {found[3]: found[4]}
            yield line
        elif line.startswith("$ hermes "):
            for request, listed in answers.items():
                server.on(request, *listed)
            answers.clear()
            server.calls.clear()
            command, _, stdin = line.removeprefix("$ hermes ").partition(" <<< ")
            result = hermes(*shlex.split(command), stdin=stdin.replace("\\n", "\n") or None)
            yield line
            yield from (each.rstrip() for each in shown(result.stdout, server))
            yield from (f"! {each}" for each in shown(result.stderr, server))
            for call in server.calls:
                if call.method != "GET":
                    said = [
                        f"{name}: {call.headers[name]}" for name in SHOWN if name in call.headers
                    ]
                    body = repr(call.body)[2:-1] if b"\n" in call.body else call.body.decode()
                    yield " ".join(("> " + call.method, call.path, *said, body)).rstrip()
            if result.exit_code:
                yield f"exit {result.exit_code}"


def shown(text: str, server: Any) -> list[str]:
    for pattern, instead in VARYING.items():
        text = re.sub(pattern, instead, text)
    return text.replace(server.url, "http://server").splitlines()


@pytest.mark.parametrize(("file", "title", "lines"), list(sections()))
def test_a_transcript_is_what_happens(
    file: str, title: str, lines: str, hermes: Callable[..., Result], server: Any
) -> None:
    now = "\n".join(played(lines, hermes, server))
    if os.environ.get("HERMES_TRANSCRIPTS") == "write":
        path = FOLDER / f"{file}.txt"
        path.write_text(path.read_text().replace(f"\n== {title}\n{lines}", f"\n== {title}\n{now}"))
    else:
        assert now == lines
