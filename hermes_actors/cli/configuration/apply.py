"""`hermes apply`: makes the cluster's configuration as the files say."""

import difflib
import json
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from hermes_actors.cli.command_line.failures import EXIT_USAGE, CommandFailed, UsageWrong, warn
from hermes_actors.cli.command_line.options import YesOption, confirm, wants_json
from hermes_actors.cli.configuration.files import Found, read
from hermes_actors.cli.configuration.requests import LabelOption, Rows, labelled, send
from hermes_actors.cli.connection.asking import management, management_command
from hermes_actors.cli.connection.management import Refusal
from hermes_actors.cli.output.render import counted, flattened, printable, say, write_json
from hermes_actors.management.configuration.items import Item, item_of

app = typer.Typer()

_SHOWN_MAX = 60
_DONE = {"create": "created", "change": "changed", "delete": "deleted", "none": "unchanged"}
_SIGNS = {"create": "+", "change": "~", "delete": "-"}


@management_command(
    app,
    "hermes apply -f topics/ --diff",
    "hermes apply -f topics/ --reason CHG-7",
    "hermes apply -f topics/ --prune --label team=shop --yes",
    "hermes export | hermes apply -f - --dry-run",
    name="apply",
)
def apply(
    file: Annotated[
        list[str],
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="YAML or JSON file, folder, or '-' for stdin; repeatable.",
        ),
    ],
    diff: Annotated[
        bool,
        typer.Option("--diff", help="Only show changes. Exit code 0: none, 1: some, 2: an error."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show changes.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete items that have the label but are in no file.")
    ] = False,
    label: LabelOption = None,
    yes: YesOption = False,
) -> None:
    """Create and change what differs from the files; fields that they leave out stay."""
    if prune != (label is not None):
        raise UsageWrong("--prune and --label KEY=VALUE belong together: see 'hermes apply --help'")
    found = read(file)
    if prune and not found:
        raise UsageWrong(
            "nothing was done: the files have no items, so --prune would delete everything"
        )
    run = _Run(found, is_dry=diff or dry_run)
    try:
        run.show(send((each.item for each in found), dry_run=run.is_dry))
        if label is not None and run.failed:
            warn("nothing was pruned, because of the failures")
        elif label is not None:
            run.prune(label, yes)
        run.show_counts()
        if not run.is_dry:
            run.show_losers()
        if run.failed:
            raise CommandFailed(f"{counted(run.failed, 'item')} failed")
    except CommandFailed as error:
        if diff:
            error.exit_code = EXIT_USAGE
        raise
    if diff and run.counts.keys() - {"none"}:
        raise typer.Exit(1)


class _Run:
    """One run: what it did, and the items of the files, of which some may have failed."""

    def __init__(self, found: list[Found], *, is_dry: bool) -> None:
        self.is_dry = is_dry
        self.counts: Counter[str] = Counter()
        self.failed = 0
        self._rows: Rows = []
        self._found = {each.item.resource: each for each in found}

    def show(self, answers: Iterable[Rows]) -> None:
        """Print a line for each item that is not as in the files."""
        for row in (row for rows in answers for row in rows):
            self._rows.append(row)
            resource = row["resource"]
            if error := row.get("error"):
                self.failed += 1
                place = self._found[resource].place if resource in self._found else "prune"
                text = f"hermes: {place} {resource}: {error['message']} ({error['code']})"
                print(printable(text), file=sys.stderr)
                continue
            self.counts[row["action"]] += 1
            if row["action"] in _SIGNS and not wants_json():
                say(f"{_SIGNS[row['action']]} {resource}")
                for line in _differences(row) if row["action"] == "change" else ():
                    say(f"    {line}")

    def show_counts(self) -> None:
        """Print the sums; with JSON output all rows."""
        if wants_json():
            write_json(json.dumps(self._rows).encode())
            return
        told = [f"{self.counts[action]} {done}" for action, done in _DONE.items()]
        failed = f", {self.failed} failed" if self.failed else ""
        say(f"{', '.join(told)}{failed}{' (nothing was written)' if self.is_dry else ''}")

    def prune(self, label: str, yes: bool) -> None:
        """Delete what has the label and is in no file, after a confirmation."""
        kept = self._found
        gone = [each for each in labelled_items(label) if each.resource not in kept]
        gone.reverse()
        if not gone:
            return
        if not self.is_dry:
            for each in gone:
                say(f"to be deleted: {each.resource}")
            confirm(counted(len(gone), "item"), yes)
        self.show(send(gone, dry_run=self.is_dry, deletes=True))

    def show_losers(self) -> None:
        """Compare again, and name what somebody else has changed meanwhile."""
        refused = {row["resource"] for row in self._rows if "error" in row}
        items = [each.item for each in self._found.values() if each.item.resource not in refused]
        for row in (row for rows in send(items, dry_run=True) for row in rows):
            if row.get("action") != "none":
                resource = row["resource"]
                warn(printable(f"{resource} no longer matches the files{_changed_by(resource)}"))


def labelled_items(label: str) -> list[Item]:
    """The cluster's items with this label, parents before their children."""
    found = labelled(label)
    return [item_of(kind, each, kind) for kind, listed in found.items() for each in listed]


def _differences(row: dict[str, Any]) -> list[str]:
    """The fields that differ, each with its old and its new value."""
    before, after = dict(row["before"]), dict(row["after"])
    old_schema, new_schema = (_pretty(each.pop("schema", None)) for each in (before, after))
    old, new = dict(flattened(before)), dict(flattened(after))
    lines = [
        f"{name}: {_short(old.get(name))} → "
        + ("(secret changed)" if old.get(name) == new.get(name) else _short(new.get(name)))
        for name in {**old, **new}
    ]
    compared = difflib.unified_diff(old_schema, new_schema, lineterm="", n=2)
    return [*lines, *list(compared)[2:]]


def _short(text: str | None) -> str:
    text = "-" if text is None else " ".join(text.split())
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def _pretty(schema: str | None) -> list[str]:
    try:
        return json.dumps(json.loads(schema or "null"), indent=2).splitlines() if schema else []
    except ValueError:
        return (schema or "").splitlines()


def _changed_by(resource: str) -> str:
    try:
        answer = management().get("/audit", {"resource": resource, "limit": "1"})
        (entry, *_) = json.loads(answer)["changes"]
    except (Refusal, ValueError, KeyError, TypeError):
        return ""
    return f": {entry.get('by')} changed it at {entry.get('time')}"
