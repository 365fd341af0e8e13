"""How evenly each algorithm balances each cluster, as a hand-written SVG, light and dark."""

from collections.abc import Iterator
from html import escape
from typing import Any

_ROW_H, _GROUP_GAP, _LEFT, _TOP, _WIDTH, _RIGHT = 15, 34, 240, 64, 560, 110
_LIGHT = ("#94a3b8", "#64748b", "#c2410c", "#ea8a3e", "#854d0e", "#0f766e", "#15803d", "#0b62c4")
_DARK = ("#64748b", "#94a3b8", "#ff9d66", "#ffc08a", "#fbbf24", "#5eead4", "#5fd38a", "#6db3ff")


def draw(rows: list[dict[str, Any]]) -> str:
    """A group of bars for each cluster: how far the fullest node is above the ideal, in percent.
    The thin line extends to the worst seed.
    """
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    names = list(dict.fromkeys(row["algorithm"] for row in rows))
    height = _TOP + len(shapes) * (_GROUP_GAP + _ROW_H * len(names)) + 40
    width = _LEFT + _WIDTH + _RIGHT
    most = max(2.0, *(100 * (row["over_ideal_worst"] - 1) for row in rows))
    title = "The fullest node's load above the ideal, %: mean and worst seed; moved tasks"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="system-ui, sans-serif" font-size="11" role="img">'
    )
    parts = [
        head,
        f"<title>{escape(title)}</title>",
        _style(),
        f'<rect class="ground" width="{width}" height="{height}"/>',
        f'<text class="ink" x="14" y="26" font-size="15">{escape(title)}</text>',
    ]
    y = _TOP
    for shape in shapes:
        parts.append(f'<text class="ink" x="14" y="{y}" font-weight="bold">{escape(shape)}</text>')
        y += 8
        for row in (row for row in rows if row["shape"] == shape):
            parts += _bar(row, names.index(row["algorithm"]), y, most)
            y += _ROW_H
        y += _GROUP_GAP - 8
    return "\n".join([*parts, "</svg>", ""])


def _bar(row: dict[str, Any], colour: int, y: int, most: float) -> Iterator[str]:
    mean, worst = (100 * (row[key] - 1) for key in ("over_ideal", "over_ideal_worst"))
    end, far = (_LEFT + _WIDTH * max(0.0, each) / most for each in (mean, worst))
    colour %= len(_LIGHT)
    yield (
        f"<g><title>{escape(row['algorithm'])}: {mean:.2f} %, worst {worst:.2f} %</title>"
        f'<text class="ink" x="{_LEFT - 6}" y="{y + 10}" text-anchor="end">'
        f"{escape(row['algorithm'])}</text>"
        f'<rect class="f{colour}" x="{_LEFT}" y="{y + 2}" width="{max(1.0, end - _LEFT):.1f}" '
        f'height="{_ROW_H - 5}"/>'
        f'<line class="c{colour}" x1="{end:.1f}" x2="{far:.1f}" y1="{y + 7}" y2="{y + 7}"/>'
        f'<text class="ink" x="{far + 5:.1f}" y="{y + 10}" font-size="10">'
        f"{worst:.1f}; {row['moves']:.0f}</text></g>"
    )


def _style() -> str:
    def theme(ground: str, ink: str, colours: tuple[str, ...]) -> str:
        lines = "".join(
            f".c{n}{{stroke:{colour}}}.f{n}{{fill:{colour}}}" for n, colour in enumerate(colours)
        )
        return f".ground{{fill:{ground}}}.ink{{fill:{ink}}}{lines}"

    return (
        "<style>"
        + theme("#ffffff", "#1f2933", _LIGHT)
        + "@media (prefers-color-scheme: dark){"
        + theme("#14181d", "#e4e8ec", _DARK)
        + "}</style>"
    )
