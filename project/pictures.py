"""What the drawn figures of the documentation have in common: a frame, colours for light and dark pages, a legend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

WIDTH = 920
STYLE = """\
    .page { fill: #ffffff; }
    .text { fill: #1b2733; }
    .soft { fill: #52606d; }
    .grid { stroke: #d5dbe1; }
    .same { stroke: #52606d; stroke-dasharray: 5 4; }
    .s0 { fill: #2b6cb0; stroke: #2b6cb0; }
    .s1 { fill: #b7791f; stroke: #b7791f; }
    .s2 { fill: #2f855a; stroke: #2f855a; }
    .s3 { fill: #97266d; stroke: #97266d; }
    .line { fill: none; stroke-width: 2.5; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #14191f; }
      .text { fill: #e6ebf0; }
      .soft { fill: #a7b4c0; }
      .grid { stroke: #35404b; }
      .same { stroke: #a7b4c0; }
      .s0 { fill: #63a4e0; stroke: #63a4e0; }
      .s1 { fill: #dca53d; stroke: #dca53d; }
      .s2 { fill: #68d391; stroke: #68d391; }
      .s3 { fill: #ed83c4; stroke: #ed83c4; }
      .line { fill: none; }
    }"""


def frame(name: str, title: str, description: str, height: int, lines: Iterable[str]) -> str:
    """Return an SVG of what is drawn in it.

    Args:
        name: what it is, for who does not see it.
        title: stands above.
        description: the picture in words, for who does not see it.
        lines: elements.
    """
    body = "\n".join(f"  {line}" for line in lines)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title description"
     font-family="system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif" font-size="14">
  <title id="title">{escape(name)}</title>
  <desc id="description">{escape(description)}</desc>
  <style>
{STYLE}
  </style>
  <rect class="page" width="{WIDTH}" height="{height}" rx="10"/>
  <text class="text" x="24" y="34" font-size="16" font-weight="600">{escape(title)}</text>
{body}
</svg>
"""


def legend(labels: Iterable[str], step: int = 200) -> list[str]:
    """Return what the colours stand for, side by side."""
    lines = []
    for place, label in enumerate(labels):
        at = 24 + step * place
        lines.append(f'<circle class="s{place}" cx="{at + 6}" cy="52" r="4.5"/>')
        lines.append(f'<text class="soft" x="{at + 20}" y="57">{escape(label)}</text>')
    return lines


def bars(rows: Sequence[tuple[str, Sequence[float]]], *, left: int, top: int, step: int) -> list[str]:
    """Return a bar for each value, each row's below its name, with the number at its end."""
    widest = max((value for _, values in rows for value in values), default=0) or 1
    lines = []
    for number, (name, values) in enumerate(rows):
        middle = top + step * number + step // 2
        lines.append(f'<text class="text" x="{left - 14}" y="{middle + 5}" text-anchor="end">{escape(name)}</text>')
        for place, value in enumerate(values):
            y = middle + (place - len(values) / 2) * 13 + 1
            width = round((WIDTH - 90 - left) * value / widest, 1)
            lines.append(f'<rect class="s{place}" x="{left}" y="{y}" width="{width}" height="10"/>')
            lines.append(f'<text class="soft" x="{left + width + 6}" y="{y + 10}" font-size="12">{value:g}</text>')
    return lines
