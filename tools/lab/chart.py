"""Figures as text and as a picture: rows of Markdown tables, and bars in one SVG file that loads
nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

ROW = 18
GROUP_GAP = 44
LEFT = 12
NAME_WIDTH = 200
BAR_WIDTH = 240
TEXT_WIDTH = 80
COLUMN = BAR_WIDTH + TEXT_WIDTH
STYLE = ("text{font:12px sans-serif;fill:#222}.title{font-weight:bold}.head{fill:#666}"
         ".bar{fill:#9db4cc}.ours{fill:#1f5fa8}")
OUTSIDE = {'"': "&quot;"}


@dataclass(frozen=True)
class Bar:
    """One number, and how it is written."""

    value: float
    text: str


@dataclass(frozen=True)
class Row:
    """One program: a bar in each column, or the reason why there is none."""

    name: str
    bars: Sequence[Bar]
    is_ours: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Group:
    """One comparison: a picture for each column, all rows to one scale."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Row]


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; all columns but the first are numbers."""
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _text(x: float, y: float, words: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.0f}" y="{y:.0f}"{named}>{escape(words)}</text>'


def _row(row: Row, top: float, most: Sequence[float]) -> str:
    parts = [_text(LEFT, top + 13, row.name)]
    if row.reason:
        return parts[0] + _text(NAME_WIDTH, top + 13, row.reason, "head")
    for index, (bar, highest) in enumerate(zip(row.bars, most, strict=True)):
        left = NAME_WIDTH + index * COLUMN
        width = BAR_WIDTH * bar.value / highest if highest else 0.0
        parts.append(
            f'<rect class="{"ours" if row.is_ours else "bar"}" x="{left}" y="{top + 2:.0f}" '
            f'width="{max(width, 1.0):.1f}" height="{ROW - 4}" '
            f'data-name="{escape(row.name, OUTSIDE)}" data-value="{bar.value:.6g}"/>')
        parts.append(_text(left + width + 6, top + 13, bar.text))
    return "".join(parts)


def picture(title: str, groups: Sequence[Group]) -> str:
    """All groups, one below the other."""
    parts, top = [_text(LEFT, 16, title, "title")], 30.0
    columns = max((len(group.heads) for group in groups), default=1)
    for group in groups:
        parts.append(_text(LEFT, top + 14, group.title, "title"))
        parts += [_text(NAME_WIDTH + index * COLUMN, top + 32, head, "head")
                  for index, head in enumerate(group.heads)]
        top += GROUP_GAP - 6
        measured = [row for row in group.rows if not row.reason]
        most = [max((row.bars[index].value for row in measured), default=0.0)
                for index in range(len(group.heads))]
        for row in group.rows:
            parts.append(_row(row, top, most))
            top += ROW
        top += 12
    width = NAME_WIDTH + columns * COLUMN
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top:.0f}" '
            f'viewBox="0 0 {width} {top:.0f}"><style>{STYLE}</style>'
            f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n')
