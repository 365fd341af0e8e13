"""Lists rows of the input that a subscriber file does not show as accepted; standard library only.

    python verify.py INPUT.ndjson[.gz] [--limit N] SINK.ndjson...

A row counts as accepted if a delivery with exactly its body was answered 2xx. Equal rows need that
many different message ids. Each body's hash is computed here, not taken from the file. Exit code 1
if a row is missing, or a delivered body is in no row; 2 if the input has no row. The last line is
`missing N`.
"""

import argparse
import base64
import gzip
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SHOWN_MAX = 5


@dataclass
class Finding:
    """The result for one subscriber's file. `missing` has line numbers of the input."""

    accepted: int = 0
    refused: int = 0
    duplicates: int = 0
    missing: list[int] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)


def rows(path: Path, limit: int | None) -> Iterator[tuple[int, bytes]]:
    """The input's rows with line numbers from 1, without empty lines."""
    taken = 0
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            row = line.rstrip(b"\r\n")
            if not row.strip():
                continue
            if limit is not None and taken >= limit:
                return
            taken += 1
            yield number, row


def compare(expected: list[tuple[int, bytes]], sink: Path) -> Finding:
    """Compare one subscriber's file with the rows."""
    finding = Finding()
    lines_of: dict[str, list[int]] = {}
    for number, row in expected:
        lines_of.setdefault(hashlib.sha256(row).hexdigest(), []).append(number)
    ids_of: dict[str, Counter[str]] = {}
    with sink.open("rb") as file:
        for line in file:
            delivery = json.loads(line)
            if not 200 <= delivery["status"] < 300:
                finding.refused += 1
                continue
            finding.accepted += 1
            body = body_of(delivery)
            digest = hashlib.sha256(body).hexdigest()
            if digest not in lines_of or digest != delivery["bodySha256"]:
                finding.foreign.append(f"{delivery['messageId']}: {body[:120]!r}")
                continue
            ids_of.setdefault(digest, Counter())[delivery["messageId"]] += 1
    for digest, numbers in lines_of.items():
        ids = ids_of.get(digest, Counter())
        finding.missing += numbers[len(ids) :]
        finding.duplicates += max(0, sum(ids.values()) - len(numbers))
    finding.missing.sort()
    return finding


def body_of(delivery: dict[str, str]) -> bytes:
    """The bytes of a delivery's body."""
    if "bodyBase64" in delivery:
        return base64.b64decode(delivery["bodyBase64"])
    return delivery["body"].encode("utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Print a line for each file, then `missing N`; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("input", type=Path)
    parser.add_argument("sinks", type=Path, nargs="+")
    parser.add_argument("--limit", type=int, default=None)
    options = parser.parse_args(arguments)
    expected = list(rows(options.input, options.limit))
    if not expected:
        # An empty input would prove nothing.
        parser.error(f"there is no row to look for in {options.input}")
    missing = foreign = 0
    for sink in options.sinks:
        finding = compare(expected, sink)
        missing += len(finding.missing)
        foreign += len(finding.foreign)
        print(
            f"{sink.name}: {len(expected)} rows expected, {finding.accepted} deliveries accepted, "
            f"{finding.duplicates} of them duplicates, {len(finding.missing)} rows missing"
        )
        for number in finding.missing[:SHOWN_MAX]:
            print(f"  missing: line {number} of {options.input.name}")
        if len(finding.missing) > SHOWN_MAX:
            print(f"  missing: and {len(finding.missing) - SHOWN_MAX} more")
        for text in finding.foreign[:SHOWN_MAX]:
            print(f"  delivered, but in no row: {text}")
        if len(finding.foreign) > SHOWN_MAX:
            print(f"  delivered, but in no row: and {len(finding.foreign) - SHOWN_MAX} more")
    print(f"missing {missing}")
    return 1 if missing or foreign else 0


if __name__ == "__main__":
    sys.exit(main())
