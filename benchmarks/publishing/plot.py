"""Latency over offered rate as a hand-written SVG: logarithmic axes, light and dark."""

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

_PANEL_W, _PANEL_H = 430, 280
_LEFT, _TOP, _GAP_X, _GAP_Y, _LEGEND_W = 70, 60, 80, 80, 250
_LIGHT = ("#0b62c4", "#c2410c", "#15803d", "#7e22ce", "#b91c6b", "#0f766e", "#854d0e", "#475569")
_DARK = ("#6db3ff", "#ff9d66", "#5fd38a", "#c99bff", "#ff8ac4", "#5eead4", "#fbbf24", "#a8b3c4")
_DASHES = {"http1": "", "http2": "7 3", "batch": "2 3"}
_PANELS = (("p50_ms", "p50"), ("p99_ms", "p99"), ("p999_ms", "p99.9"))


class Line(NamedTuple):
    """One configuration: points of rate per second and latency in ms."""

    name: str
    colour: int
    dash: str
    is_floor: bool
    points: list[tuple[float, float]]


class Scale(NamedTuple):
    """A logarithmic axis from a value at one pixel to a value at another."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """The pixel of a value; values outside are put on the edge."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(self.start + min(1.0, max(0.0, share)) * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        """1, 2 and 5 in each decade, within the axis."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        every = [step * 10.0**decade for decade in decades for step in (1, 2, 5)]
        return [each for each in every if self.low <= each * 1.001 and each <= self.high * 1.001]


def scale_of(values: Sequence[float], start: float, end: float) -> Scale:
    """An axis that contains all values and begins and ends at 1, 2 or 5 of a decade."""

    def outward(value: float, steps: Sequence[int], direction: int) -> float:
        decade = 10.0 ** math.floor(math.log10(value))
        inside = [
            each * decade for each in steps if (each * decade - value) * direction >= -1e-9 * value
        ]
        return min(inside) if direction > 0 else max(inside)

    low = outward(min(values), (1, 2, 5), -1)
    high = outward(max(values), (1, 2, 5, 10), 1)
    return Scale(low, high if high > low else low * 10, start, end)


def draw(results: dict[str, Any]) -> str:
    """The whole picture: a column for each log, a row for p50, p99 and p99.9."""
    rows = [row for row in results["open"] if row["p50_ms"]]
    logs = sorted({row["log"] for row in rows} - {"empty"}) or ["empty"]
    keys = sorted({row["protocol"] for row in rows})
    width = _LEFT + len(logs) * (_PANEL_W + _GAP_X) + _LEGEND_W
    height = _TOP + len(_PANELS) * (_PANEL_H + _GAP_Y)
    parts = [
        _svg(width, height),
        f"<title>{escape(_title(results))}</title>",
        _style(),
        f'<rect class="ground" width="{width}" height="{height}"/>',
        f'<text class="ink" x="{_LEFT}" y="26" font-size="16">{escape(_title(results))}</text>',
    ]
    for column, log in enumerate(logs):
        for number, (field, quantile) in enumerate(_PANELS):
            lines = [
                Line(
                    key + " empty app" * (source == "empty"),
                    keys.index(key),
                    _DASHES[key],
                    source == "empty",
                    sorted(
                        (row["offered_per_s"], row[field])
                        for row in rows
                        if row["log"] == source and row["protocol"] == key
                    ),
                )
                for source in dict.fromkeys((log, "empty"))
                for key in keys
            ]
            floors = [
                (floor["floor"], floor["one_in_flight"][field])
                for floor in results["floors"]
                if floor["log"] == log and floor["message"] == results["options"]["open_message"]
            ]
            x = _LEFT + column * (_PANEL_W + _GAP_X)
            y = _TOP + number * (_PANEL_H + _GAP_Y)
            shown = [line for line in lines if line.points]
            parts += _panel(x, y, f"{log} log, {quantile}", shown, floors)
    parts += _legend(width - _LEGEND_W + 10, _TOP, keys, any(row["log"] == "empty" for row in rows))
    return "\n".join([*parts, "</svg>", ""])


def _svg(width: int, height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="system-ui, sans-serif" font-size="12" role="img">'
    )


def _title(results: dict[str, Any]) -> str:
    options = results["options"]
    return (
        f"Publish latency over offered rate, messages of {options['open_message']}, "
        f"open loop, {options['spacing']} arrivals"
    )


def _style() -> str:
    def theme(ground: str, ink: str, grid: str, colours: Sequence[str]) -> str:
        lines = "".join(
            f".c{n}{{stroke:{colour}}}.f{n}{{fill:{colour}}}" for n, colour in enumerate(colours)
        )
        return (
            f".ground{{fill:{ground}}}.ink{{fill:{ink}}}.base{{stroke:{ink}}}"
            f".grid{{stroke:{grid}}}{lines}"
        )

    return (
        "<style>.line{fill:none;stroke-width:2}.floor{fill:none;stroke-width:1;opacity:.65}"
        ".mark{opacity:.9}"
        + theme("#ffffff", "#1f2933", "#d5dbe1", _LIGHT)
        + "@media (prefers-color-scheme: dark){"
        + theme("#14181d", "#e4e8ec", "#3a434d", _DARK)
        + "}</style>"
    )


def _panel(
    x: int, y: int, title: str, lines: list[Line], floors: list[tuple[str, float]]
) -> Iterator[str]:
    yield f'<text class="ink" x="{x}" y="{y - 8}" font-weight="bold">{escape(title)}</text>'
    points = [point for line in lines for point in line.points]
    if not points:
        yield f'<text class="ink" x="{x}" y="{y + 20}">nothing was measured</text>'
        return
    rates = scale_of([rate for rate, _ in points], x, x + _PANEL_W)
    values = [value for _, value in points] + [value for _, value in floors]
    times = scale_of(values, y + _PANEL_H, y)
    yield from _axes(x, y, rates, times)
    for number, (name, value) in enumerate(floors):
        at = times.at(value)
        # The two floors may be close together, so their names are at different ends.
        end, anchor = (x + 4, "start") if number % 2 else (x + _PANEL_W - 4, "end")
        yield (
            f'<line class="base" x1="{x}" x2="{x + _PANEL_W}" y1="{at}" y2="{at}" {_dash("1 4")}/>'
            f'<text class="ink" x="{end}" y="{at - 3}" font-size="10" text-anchor="{anchor}">'
            f"{escape(name)}, one in flight</text>"
        )
    for line in lines:
        yield from _line(line, rates, times)


def _axes(x: int, y: int, rates: Scale, times: Scale) -> Iterator[str]:
    for tick in rates.ticks():
        at = rates.at(tick)
        yield f'<line class="grid" x1="{at}" x2="{at}" y1="{y}" y2="{y + _PANEL_H}"/>'
        yield (
            f'<text class="ink" x="{at}" y="{y + _PANEL_H + 16}" text-anchor="middle" '
            f'font-size="10">{_number(tick)}</text>'
        )
    for tick in times.ticks():
        at = times.at(tick)
        yield f'<line class="grid" x1="{x}" x2="{x + _PANEL_W}" y1="{at}" y2="{at}"/>'
        yield (
            f'<text class="ink" x="{x - 6}" y="{at + 4}" text-anchor="end" '
            f'font-size="10">{_number(tick)}</text>'
        )
    middle = x + _PANEL_W / 2
    yield (
        f'<text class="ink" x="{middle}" y="{y + _PANEL_H + 34}" text-anchor="middle">'
        "offered rate, messages/s</text>"
    )
    yield (
        f'<text class="ink" text-anchor="middle" transform="translate({x - 48} '
        f'{y + _PANEL_H / 2}) rotate(-90)">latency, ms</text>'
    )


def _line(line: Line, rates: Scale, times: Scale) -> Iterator[str]:
    colour = line.colour % len(_LIGHT)
    places = [(rates.at(rate), times.at(value)) for rate, value in line.points]
    path = " ".join(f"{px},{py}" for px, py in places)
    kind = "floor" if line.is_floor else "line"
    yield f"<g><title>{escape(line.name)}</title>"
    yield f'<polyline class="{kind} c{colour}" points="{path}" {_dash(line.dash)}/>'
    if not line.is_floor:
        for px, py in places:
            yield f'<circle class="mark f{colour}" cx="{px}" cy="{py}" r="3"/>'
    yield "</g>"


def _legend(x: int, y: int, keys: list[str], has_empty: bool) -> Iterator[str]:
    entries = [(key, n, _DASHES[key], "line") for n, key in enumerate(keys)]
    if has_empty:
        entries += [
            (f"{key}, empty app", n, _DASHES[key], "floor")
            for n, key in enumerate(keys)
            if key != "batch"
        ]
    for number, (name, colour, dash, kind) in enumerate(entries):
        at = y + 18 * number
        yield (
            f'<line class="{kind} c{colour % len(_LIGHT)}" x1="{x}" x2="{x + 34}" y1="{at}" '
            f'y2="{at}" {_dash(dash)}/>'
        )
        yield f'<text class="ink" x="{x + 42}" y="{at + 4}">{escape(name)}</text>'


def _dash(pattern: str) -> str:
    return f'stroke-dasharray="{pattern}"' if pattern else ""


def _number(value: float) -> str:
    return f"{value / 1000:g}k" if value >= 1_000 else f"{value:g}"
