"""Runs a page of documentation: its code blocks in their order, as a reader would.

A block after a line with a name in backticks and a colon is written to that file.

A block `sh` runs to its end. If it begins with `# billing's terminal`, it runs beside the others,
instead of the earlier one in that terminal.

A block without a language is output: each line must be in that of the last `sh`, as often as in
the block. After a paragraph that says "in billing's terminal", it must appear there soon. `…` is
anything, and a space is any white space.
"""

import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.live.waiting import wait_until

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TERMINAL = re.compile(r"\b(\w+)'s terminal")


class Block(NamedTuple):
    """A code block, and the paragraph before it."""

    said: str
    language: str
    text: str


def blocks(page: str) -> Iterator[Block]:
    """The page's code blocks in their order."""
    end = 0
    for found in _BLOCK.finditer(page):
        said = page[end : found.start()].strip().rpartition("\n\n")[2]
        yield Block(said, found[1], found[2])
        end = found.end()


class Reader:
    """Does what a page says, in a folder. `variables` is the whole environment."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._folder = folder
        self._variables = variables
        self._terminals: dict[str, subprocess.Popen[str]] = {}
        self._seen: dict[str, int] = {}
        self._output = ""

    def do(self, block: Block) -> None:
        """Do one block. Raises AssertionError if it does not come out as the page says."""
        terminal = _TERMINAL.search(block.text if block.language == "sh" else block.said)
        if file := re.fullmatch(r"`([\w.]+)`:", block.said):
            (self._folder / file[1]).write_text(block.text)
        elif block.language == "sh" and terminal:
            self._start(terminal[1], block.text)
        elif block.language == "sh":
            self._run(block.text)
        elif not block.language and terminal:
            name = terminal[1]
            wait_until(
                lambda: not missing(block.text, self._printed(name)[self._seen[name] :]),
                f"{block.text} in {name}'s terminal",
            )
        elif not block.language:
            assert not missing(block.text, self._output), f"{block.text}\n{self._output}"

    def close(self) -> None:
        """End what still runs."""
        for name in reversed(self._terminals):
            self._end(name)

    def _run(self, text: str) -> None:
        self._seen = {name: len(self._printed(name)) for name in self._terminals}
        ended = subprocess.run(
            ["bash", "-ec", text],
            cwd=self._folder,
            env=self._variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        self._output = ended.stdout
        assert ended.returncode == 0, f"{text}\n{ended.stdout}"

    def _start(self, name: str, text: str) -> None:
        self._end(name)
        command = text.splitlines()[1]
        with self._log(name).open("w") as log:
            self._terminals[name] = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self._folder,
                env=self._variables,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self._seen[name] = 0

    def _end(self, name: str) -> None:
        if name in self._terminals:
            self._terminals[name].terminate()
            self._terminals[name].wait(60)

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _printed(self, name: str) -> str:
        return self._log(name).read_text()


def missing(wanted: str, printed: str) -> list[str]:
    """The wanted lines that were not printed as often as they are wanted."""
    lines = printed.splitlines()
    return [
        line
        for line, count in Counter(wanted.splitlines()).items()
        if sum(bool(_loose(line).search(each)) for each in lines) < count
    ]


def _loose(line: str) -> re.Pattern[str]:
    parts = re.split(r"(…|\s+)", line)
    return re.compile(
        "".join(".*" if p == "…" else r"\s+" if p.isspace() else re.escape(p) for p in parts)
    )
