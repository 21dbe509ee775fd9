"""Draws figures as SVG, without a library: lines over logarithmic axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 480, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 58, 44
COLOURS = ("#1f6f8b", "#c1440e", "#5b8c2a", "#7a4fa3")
STYLE = "font-family:sans-serif;font-size:12px"


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture: lines through points with both coordinates above 0."""

    title: str
    across: str
    up: str
    lines: Mapping[str, Sequence[tuple[float, float]]]

    def svg(self) -> str:
        """Return it as a document of its own."""
        return "\n".join([*self._frame(), *self._drawn(), "</svg>", ""])

    def _frame(self) -> Iterator[str]:
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
            f'height="{HEIGHT}" role="img" style="{STYLE}">'
        )
        yield f"<title>{escape(self.title)}</title>"
        yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
        yield _text(LEFT, 20, self.title, weight="bold")
        yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, self.across, anchor="middle")
        middle = (TOP + HEIGHT - BOTTOM) / 2
        yield _text(14, middle, self.up, anchor="middle", turned=True)
        for value in _marks(self._xs):
            x = self._x(value)
            yield f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#e2e2e2"/>'
            yield _text(x, HEIGHT - BOTTOM + 16, _short(value), anchor="middle")
        for value in _marks(self._ys):
            y = self._y(value)
            yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#e2e2e2"/>'
            yield _text(LEFT - 6, y + 4, _short(value), anchor="end")

    def _drawn(self) -> Iterator[str]:
        at = float(LEFT)
        for colour, (name, points) in zip(COLOURS, self.lines.items(), strict=False):
            path = " ".join(f"{self._x(x):.1f},{self._y(y):.1f}" for x, y in points)
            yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
            for x, y in points:
                yield f'<circle cx="{self._x(x):.1f}" cy="{self._y(y):.1f}" r="3.5" fill="{colour}"/>'
            yield f'<rect x="{at:.0f}" y="31" width="10" height="10" fill="{colour}"/>'
            yield _text(at + 14, 40, name)
            at += 26 + 6.4 * len(name)

    @property
    def _xs(self) -> list[float]:
        return [x for points in self.lines.values() for x, _ in points]

    @property
    def _ys(self) -> list[float]:
        return [y for points in self.lines.values() for _, y in points]

    def _x(self, value: float) -> float:
        return LEFT + _share(value, self._xs) * (WIDTH - LEFT - RIGHT)

    def _y(self, value: float) -> float:
        return HEIGHT - BOTTOM - _share(value, self._ys) * (HEIGHT - TOP - BOTTOM)


def draw(plots: Mapping[str, Plot], folder: Path) -> None:
    """Write pictures into a folder, by the names of their files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, plot in plots.items():
        (folder / name).write_text(plot.svg(), encoding="utf-8")


def points(cases: Sequence[Mapping[str, Any]], across: str, up: str) -> list[tuple[float, float]]:
    """Return the points that a logarithm can show."""
    return [(case[across], case[up]) for case in cases if case[across] > 0 and case[up] > 0]


def _bounds(values: Sequence[float]) -> tuple[int, int]:
    """Return the decades that hold all values, at least one."""
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    return low, max(high, low + 1)


def _share(value: float, values: Sequence[float]) -> float:
    low, high = _bounds(values)
    return (log10(value) - low) / (high - low)


def _marks(values: Sequence[float]) -> list[float]:
    low, high = _bounds(values)
    return [10.0**exponent for exponent in range(low, high + 1)]


def _short(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g} {letter}"
    return f"{value:g}"


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal", turned: bool = False) -> str:
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" fill="#222222"{turn}>'
        f"{escape(text)}</text>"
    )
