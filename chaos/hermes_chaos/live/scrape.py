"""A node's counters, as Prometheus would scrape them."""

import re
from collections.abc import Iterable, Mapping
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

_TIMEOUT_S = 10.0
_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Scrape:
    """All samples of one scrape of a node, or of several together."""

    def __init__(self, text: str = "") -> None:
        self.samples: list[tuple[str, dict[str, str], float]] = []
        for line in text.splitlines():
            found = None if line.startswith("#") else _SAMPLE.fullmatch(line.strip())
            if found is not None:
                labels = dict(_LABEL.findall(found[2] or ""))
                self.samples.append((found[1], labels, float(found[3])))

    @classmethod
    def of(cls, *urls: str) -> "Scrape":
        """Scrape these nodes. A node that does not answer has no samples."""
        whole = cls()
        for url in urls:
            connection = HTTPConnection(urlsplit(url).netloc, timeout=_TIMEOUT_S)
            try:
                connection.request("GET", "/status/prometheus")
                text = connection.getresponse().read().decode()
            except (OSError, HTTPException):
                continue
            finally:
                connection.close()
            whole.samples += cls(text).samples
        return whole

    def sum(self, name: str, **labels: str) -> float:
        """The sum of all samples with that name and these labels."""
        return sum(self.values(name, **labels))

    def values(self, name: str, **labels: str) -> list[float]:
        """All samples with that name and these labels."""
        return [
            value
            for each, found, value in self.samples
            if each == name and found.items() >= labels.items()
        ]

    def by(self, name: str, label: str) -> dict[str, float]:
        """The sums of that name by the values of a label, if above 0."""
        sums: dict[str, float] = {}
        for each, found, value in self.samples:
            if each == name and value:
                sums[found.get(label, "")] = sums.get(found.get(label, ""), 0.0) + value
        return dict(sorted(sums.items()))


def grown(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, int]:
    """The increase of each value that has grown."""
    return {
        name: round(value - before.get(name, 0.0))
        for name, value in after.items()
        if value > before.get(name, 0.0)
    }


def shown(counts: Mapping[str, float] | Iterable[tuple[str, float]]) -> str:
    """`a 1, b 2`, or `none`."""
    return ", ".join(f"{name} {count:g}" for name, count in dict(counts).items()) or "none"
