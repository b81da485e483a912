"""A picture of ratios: one bar for each, on a logarithmic scale, right of the line when pikkuflow is faster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

_ROW, _LABELS, _HALF, _MARGIN = 22, 300, 210, 60
_FASTER, _SLOWER, _INK = "#2a7f62", "#b3541e", "#57606a"
_TICKS: Final = (0.1, 0.3, 1, 3, 10, 30, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One comparison."""

    title: str
    times_faster: float


def bars(shown: Sequence[Bar]) -> str:
    """The picture as SVG."""
    reach = max([abs(math.log10(one.times_faster)) for one in shown] + [1.0])
    width, height = _LABELS + 2 * _HALF + _MARGIN, _ROW * (len(shown) + 2)

    def x_of(value: float) -> float:
        return _LABELS + _HALF + math.log10(value) / reach * _HALF

    size = f'width="{width}" height="{height}"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}"'
    parts = [f'{opening} font-family="system-ui, sans-serif" font-size="12">', f'<rect {size} fill="white"/>']
    for tick in _TICKS:
        if abs(math.log10(tick)) <= reach:
            x = x_of(tick)
            line = f'x1="{x:.1f}" x2="{x:.1f}" y1="{_ROW}" y2="{height - _ROW / 2}"'
            parts.append(f'<line {line} stroke="{_INK}" stroke-opacity="{0.7 if tick == 1 else 0.2}"/>')
            parts.append(f'<text x="{x:.1f}" y="14" text-anchor="middle" fill="{_INK}">{tick:g}x</text>')
    for row, one in enumerate(shown, start=1):
        parts.extend(_bar(one, y=row * _ROW + 4, zero=x_of(1), end=x_of(one.times_faster)))
    return "\n".join([*parts, "</svg>", ""])


def _bar(one: Bar, *, y: float, zero: float, end: float) -> list[str]:
    left, length = min(zero, end), max(abs(end - zero), 1.0)
    colour = _FASTER if one.times_faster >= 1 else _SLOWER
    beside = f'x="{end + 4:.1f}"' if end >= zero else f'x="{end - 4:.1f}" text-anchor="end"'
    return [
        f'<text x="{_LABELS - 8}" y="{y + 12}" text-anchor="end">{escape(one.title)}</text>',
        f'<rect x="{left:.1f}" y="{y}" width="{length:.1f}" height="{_ROW - 8}" fill="{colour}"/>',
        f'<text {beside} y="{y + 12}">{one.times_faster:.2g}x</text>',
    ]
