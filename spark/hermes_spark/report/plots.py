"""The report's plots: bars as SVG, with identical bytes for identical numbers."""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

COLOURS = ("#3b6ea5", "#c9772c", "#7a5aa6", "#4f8a5b", "#a14a5b", "#7d7d7d")
"""The colours of a bar's parts, in order; distinguishable with colour blindness."""
_WIDTH_IN = 8.6
_ROW_IN = 0.27
_FRAME_IN = 0.85
_LABEL_CHARACTERS_MAX = 44
_SETTINGS = {
    # Ids in the SVG depend only on its content, so that two runs give the same bytes.
    "svg.hashsalt": "hermes_spark",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 8.5,
    # The dollar sign in a subscription's name does not start a formula.
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9aa4ae",
    "xtick.color": "#56616b",
    "ytick.color": "#2a3138",
}


def stacked_bars(rows: Sequence[tuple[str, Mapping[str, int]]], unit: str) -> str:
    """An SVG element with a horizontal bar for each row, divided into the parts of its mapping.

    A part has the same colour in all rows; `unit` labels the axis. Empty string without rows.
    """
    if not rows:
        return ""
    parts = list(dict.fromkeys(part for _, values in rows for part in values))
    with _figure(len(rows)) as (figure, axes):
        places = range(len(rows))
        left = [0] * len(rows)
        for number, part in enumerate(parts):
            widths = [values.get(part, 0) for _, values in rows]
            colour = COLOURS[number % len(COLOURS)]
            axes.barh(places, widths, 0.62, left, color=colour, label=part)
            left = [at + width for at, width in zip(left, widths, strict=True)]
        for place, total in zip(places, left, strict=True):
            axes.text(total, place, f" {total:,}", va="center", color="#56616b")
        _name_rows(axes, [name for name, _ in rows])
        axes.set_xlim(0, max(*left, 1) * 1.12)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlabel(unit)
        if len(parts) > 1:
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=6, frameon=False)
        return _svg(figure)


@contextmanager
def _figure(rows: int) -> Iterator[tuple[Any, Any]]:
    """A figure for that number of rows, and its axes, with settings that apply only inside."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_SETTINGS):
        size = _WIDTH_IN, _FRAME_IN + _ROW_IN * rows
        figure = Figure(figsize=size, layout="constrained")
        yield figure, figure.subplots()


def _name_rows(axes: Any, names: Sequence[str]) -> None:
    """Label the rows, the first at the top."""
    axes.set_yticks(range(len(names)), [_shortened(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def _shortened(name: str) -> str:
    """The name as a label on one line, without its middle if it is long."""
    name = "".join(each if each.isprintable() else "?" for each in name)
    if len(name) <= _LABEL_CHARACTERS_MAX:
        return name
    half = _LABEL_CHARACTERS_MAX // 2
    return f"{name[:half]}…{name[-half + 1 :]}"


def _svg(figure: Any) -> str:
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    text = written.getvalue()
    # Inside a page only the element is needed, without the XML head.
    return text[text.index("<svg") :]
