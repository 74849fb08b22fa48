"""A graph as one SVG file without scripts; every text is escaped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias
from xml.sax.saxutils import escape

from graphc.inspect.layout import TITLES, Lane, Layout, Links, layout
from graphc.inspect.scene import STYLES, Box, Kind, Scene, clip

_LINE, _PAD = 13.0, 7.0  # height of a line of text, space around the text
_CHAR = 6.05  # width of a character at 10 px in a monospace font
_GAP_X, _GAP_Y = 18.0, 20.0  # between boxes
_LANE_GAP, _MARGIN, _HEAD = 44.0, 40.0, 84.0
_WIDEST = 36  # characters in a line of a box
_MAIN_LANES = (Lane.FORWARD, Lane.BACKWARD, Lane.UPDATE)
_SOURCES = (Kind.INPUT, Kind.VARIABLE)

_Direction: TypeAlias = tuple[int, int]
_LEFT, _RIGHT, _UP, _DOWN = (-1, 0), (1, 0), (0, -1), (0, 1)

_CSS = """
text{font:10px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#1f2630}
.name{font-weight:600}.type{fill:#5b6472}.place{fill:#7347c2}
.title{font-size:15px;font-weight:600}.lane{font-size:11px;fill:#8a93a0;letter-spacing:.08em}
.edge{fill:none;stroke:#9aa5b4;stroke-width:1.1;opacity:.75}.far{opacity:.35}
.edge:hover{stroke:#c93f33;stroke-width:2.4;opacity:1}
rect{stroke-width:1.2}g:hover>rect{stroke-width:2.4}.new{stroke-dasharray:4 2.5}
.space{stroke:#c93f33}.time{stroke:#7347c2}
"""


def to_svg(picture: Scene) -> str:
    """A picture as SVG. Hovering shows type, placement, reason and origin of a value."""
    links = Links.of(picture)
    canvas = Canvas(picture, layout(picture, links))
    canvas.measure(links)
    return canvas.draw()


@dataclass
class Canvas:
    """The boxes with their sizes and positions in pixels."""

    scene: Scene
    layout: Layout
    x: list[float] = field(default_factory=list)  # of the middle
    y: list[float] = field(default_factory=list)  # of the middle
    lanes: dict[Lane, tuple[float, float]] = field(default_factory=dict)  # left edge, width
    height: float = 0.0
    outer: set[tuple[int, _Direction]] = field(default_factory=set)  # sides without a neighbor

    # -- places ---------------------------------------------------------------------------------

    def measure(self, links: Links) -> None:
        """Compute the size and the position of every box."""
        boxes = self.scene.boxes
        self.widths = [_width(box) for box in boxes]
        self.heights = [2 * _PAD + _LINE * len(_texts(box)) for box in boxes]
        self.x, self.y = [0.0] * len(boxes), [0.0] * len(boxes)
        lines = self.layout.lines(links)
        self._place_lanes(lines)
        self._place_rows(lines)

    def _place_lanes(self, lines: dict[tuple[Lane, int], list[list[int]]]) -> None:
        widths: dict[Lane, float] = {}
        for (lane, _), rows in lines.items():
            widths[lane] = max(widths.get(lane, 0.0), *(self._span(row) for row in rows))
        left = _MARGIN
        for lane in sorted(widths):
            self.lanes[lane] = left, widths[lane]
            left += widths[lane] + _LANE_GAP
        title = _MARGIN * 2 + len(self.scene.title) * _CHAR * 1.5
        self.width = max(left - _LANE_GAP + _MARGIN, title, 360.0)

    def _span(self, row: list[int]) -> float:
        return sum(self.widths[i] for i in row) + _GAP_X * (len(row) - 1)

    def _place_rows(self, lines: dict[tuple[Lane, int], list[list[int]]]) -> None:
        by_row: dict[int, list[tuple[Lane, list[list[int]]]]] = {}
        for (lane, row), rows in lines.items():
            by_row.setdefault(row, []).append((lane, rows))
        y = _HEAD
        for row in sorted(by_row):
            tallest = 0.0
            for lane, rows in by_row[row]:
                left, width = self.lanes[lane]
                at = y
                for line in rows:
                    height = max(self.heights[i] for i in line)
                    self._place_line(line, left + width / 2, at + height / 2)
                    at += height + _GAP_Y
                tallest = max(tallest, at - y)
            y += tallest
        self.height = y - _GAP_Y + _MARGIN

    def _place_line(self, line: list[int], x: float, y: float) -> None:
        left = x - self._span(line) / 2
        self.outer |= {(line[0], _LEFT), (line[-1], _RIGHT)}
        for i in line:
            self.x[i], self.y[i] = left + self.widths[i] / 2, y
            left += self.widths[i] + _GAP_X

    # -- drawing --------------------------------------------------------------------------------

    def draw(self) -> str:
        """The whole picture as text."""
        size = f"{self.width:.0f} {self.height:.0f}"
        width, height = size.split()
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{width}" '
            f'height="{height}">',
            f"<title>{escape(self.scene.title)}</title>",
            f"<style>{_CSS}</style>",
            '<defs><marker id="to" viewBox="0 0 6 6" refX="5.5" refY="3" markerWidth="6" '
            'markerHeight="6" orient="auto"><path d="M0 .5L5.5 3L0 5.5z" fill="#8a93a0"/>'
            "</marker></defs>",
            f'<rect width="{width}" height="{height}" fill="#fbfcfd"/>',
            *self._head(),
            *self._edges(),
            *(self._box(i, box) for i, box in enumerate(self.scene.boxes)),
            "</svg>",
            "",
        ])  # fmt: skip

    def _head(self) -> Iterator[str]:
        """The title, the legend, and a band with a title for each lane."""
        yield _text("title", _MARGIN, 26, self.scene.title, "start")
        x = _MARGIN
        for kind in dict.fromkeys(box.kind for box in self.scene.boxes):
            style = STYLES[kind]
            yield (
                f'<rect x="{x:.0f}" y="40" width="14" height="11" rx="3" fill="{style.fill}" '
                f'stroke="{style.stroke}"/>'
            )
            yield _text("", x + 19, 49, kind.value, "start")
            x += 19 + _CHAR * len(kind.value) + 18
        for lane, (left, width) in self.lanes.items():
            yield (
                f'<rect x="{left - 14:.0f}" y="{_HEAD - 22:.0f}" width="{width + 28:.0f}" '
                f'height="{self.height - _HEAD + 22 - 10:.0f}" rx="8" fill="{_BANDS[lane]}"/>'
            )
            yield _text("lane", left + width / 2, _HEAD - 8, TITLES[lane])

    def _edges(self) -> Iterator[str]:
        for a, b in self.scene.edges:
            words = ["edge"]
            words += ["far"] if abs(self.y[a] - self.y[b]) > _FAR else []
            words += [
                _EXCHANGES[k] for i in (a, b) if (k := self.scene.boxes[i].kind) in _EXCHANGES
            ]
            path = self._path(a, b)
            yield f'<path class="{" ".join(words[:3])}" d="{path}" marker-end="url(#to)"/>'

    def _path(self, a: int, b: int) -> str:
        """A curve from box a to box b: side to side between lanes, vertical within a lane, and
        around the boxes between them."""
        lane_a, lane_b = self.layout.lanes[a], self.layout.lanes[b]
        far = abs(self.layout.rows[a] - self.layout.rows[b]) > 1
        if lane_a != lane_b:
            direction = _RIGHT if lane_b > lane_a else _LEFT
            return self._curve(
                a, self._exit(a, direction, b), b, self._exit(b, _back(direction), a)
            )
        if self.y[a] == self.y[b]:
            direction = _RIGHT if self.x[b] > self.x[a] else _LEFT
            return self._curve(a, direction, b, _back(direction))
        if far:
            return self._curve(a, _LEFT, b, _LEFT)
        direction = _DOWN if self.y[b] > self.y[a] else _UP
        return self._curve(a, direction, b, _back(direction))

    def _exit(self, i: int, direction: _Direction, other: int) -> _Direction:
        """The side at which an edge leaves a box: top or bottom if a neighbor is beside it,
        since an arrow that came out behind the neighbor would seem to be the neighbor's."""
        if (i, direction) in self.outer:
            return direction
        return _DOWN if self.y[other] >= self.y[i] else _UP

    def _curve(self, a: int, direction_a: _Direction, b: int, direction_b: _Direction) -> str:
        start, end = self._port(a, direction_a), self._port(b, direction_b)
        across, along = abs(end[0] - start[0]), abs(end[1] - start[1])
        points = [start]
        for (x, y), (dx, dy) in ((start, direction_a), (end, direction_b)):
            if direction_a == direction_b == _LEFT:
                bend = min(_MARGIN, 12 + along / 24)
            else:
                bend = max(16.0, 0.45 * across) if dx else min(60.0, max(16.0, 0.5 * along))
            points.append((x + dx * bend, y + dy * bend))
        return _cubic(*points, end)

    def _port(self, i: int, direction: _Direction) -> tuple[float, float]:
        """The middle of a box's side."""
        return (
            self.x[i] + direction[0] * self.widths[i] / 2,
            self.y[i] + direction[1] * self.heights[i] / 2,
        )

    def _box(self, i: int, box: Box) -> str:
        style = STYLES[box.kind]
        w, h = self.widths[i], self.heights[i]
        left, top = self.x[i] - w / 2, self.y[i] - h / 2
        round = h / 2 if box.kind in (Kind.CONSTANT, Kind.INPUT, Kind.END) else 5
        dashed = ' class="new"' if box.inserted else ""
        texts = [
            _text(word, self.x[i], top + _PAD + _LINE * (k + 0.75), text)
            for k, (word, text) in enumerate(_texts(box))
        ]
        return (
            f"<g><title>{escape(box.tooltip)}</title>"
            f'<rect{dashed} x="{left:.1f}" y="{top:.1f}" width="{w:.1f}" height="{h:.1f}" '
            f'rx="{round:.0f}" fill="{style.fill}" stroke="{style.stroke}"/>'
            f"{''.join(texts)}</g>"
        )


_EXCHANGES = {Kind.SPACE: "space", Kind.TIME: "time"}
_FAR = 500.0
_BANDS = {lane: "#f3f5f8" if lane in _MAIN_LANES else "none" for lane in Lane}


def _texts(box: Box) -> list[tuple[str, str]]:
    """The lines of a box with the CSS class of each: name, op, type, placement."""
    classes = ["name", "type", "place"] if box.kind in _SOURCES else ["name", "", "type", "place"]
    return [(word, clip(line, _WIDEST)) for word, line in zip(classes, box.lines, strict=False)]


def _width(box: Box) -> float:
    return 2 * _PAD + 6 + _CHAR * max(len(text) for _, text in _texts(box))


def _text(word: str, x: float, y: float, text: str, anchor: str = "middle") -> str:
    mark = f' class="{word}"' if word else ""
    return f'<text{mark} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _back(direction: _Direction) -> _Direction:
    return -direction[0], -direction[1]


def _cubic(*points: tuple[float, float]) -> str:
    first, *rest = (f"{x:.1f} {y:.1f}" for x, y in points)
    return f"M{first}C{', '.join(rest)}"
