"""A comparison as one SVG file: the time of a step, the memory of a device, the loss over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from graphc.comparison.candidates import Measured
from graphc.comparison.recommend import Recommendation
from graphc.support.units import size_text, time_text

COLORS = ("#2f6fbf", "#c93f33", "#2a8749", "#b9850b", "#7347c2", "#0f8b8d", "#8a4b2a", "#646d7a")
WIDTH, MARGIN, ROW, CHART = 960.0, 28.0, 26.0, 260.0
BARS = 300.0  # the longest bar
_CHAR = 6.6  # width of a character at 11 px in a monospace font

_CSS = """
svg{background:#fff}
text{font:11px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#1f2630}
.title{font-size:15px;font-weight:600}.head{fill:#5b6472;letter-spacing:.06em}.take{font-weight:700}
.axis{stroke:#9aa5b4;stroke-width:1}.grid{stroke:#e4e8ee;stroke-width:1}
.loss{fill:none;stroke-width:2}.range{stroke:#1f2630;stroke-width:1.4}
@media (prefers-color-scheme:dark){svg{background:#15181d}text{fill:#e6e9ee}.head{fill:#9aa5b4}
.grid{stroke:#2a3038}.range{stroke:#e6e9ee}}
"""


def plot(measured: Sequence[Measured], advice: Recommendation, title: str) -> str:
    """The picture; candidates that could not be run are not in it."""
    ran = [m for m in measured if not m.failed]
    label = max((len(str(m.candidate)) for m in ran), default=0) * _CHAR + 2 * MARGIN
    width = max(WIDTH, label + BARS + 170 + MARGIN)
    body = [*_title(title, advice)]
    y = 84.0
    for head, rows in (
        ("SECONDS OF A STEP", [(m.step_seconds, m.spread, time_text(m.step_seconds)) for m in ran]),
        ("BYTES OF A DEVICE", [(m.peak_bytes, None, size_text(m.peak_bytes)) for m in ran]),
    ):
        body += _bars(head, rows, ran, advice, label, y)
        y += ROW * (len(ran) + 2)
    if any(m.losses for m in ran):
        body += _curves(ran, label, y, width - label - MARGIN)
        y += CHART + 3 * ROW
    size_ = f'width="{width:.0f}" height="{y:.0f}" viewBox="0 0 {width:.0f} {y:.0f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size_}><style>{_CSS}</style>'
        + "".join(body)
        + "</svg>\n"
    )


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(text)}</text>'


def _title(title: str, advice: Recommendation) -> Iterator[str]:
    yield _text(MARGIN, 34, title, "title")
    yield _text(MARGIN, 56, f"take {advice.candidate}" if advice.candidate else "take none", "head")


def _color(number: int) -> str:
    return COLORS[number % len(COLORS)]


def _bars(
    head: str, rows: Sequence[tuple[float, tuple[float, float] | None, str]],
    ran: Sequence[Measured], advice: Recommendation, left: float, top: float,
) -> Iterator[str]:  # fmt: skip
    yield _text(left, top, head, "head")
    most = max((max(value, *(span or (0.0,))) for value, span, _ in rows), default=0.0) or 1.0
    for number, ((value, span, words), m) in enumerate(zip(rows, ran, strict=True)):
        y = top + 12 + ROW * number
        kind = "take" if str(m.candidate) == advice.candidate else ""
        yield _text(left - 10, y + 13, str(m.candidate), kind, "end")
        width = max(1.0, BARS * value / most)
        where = f'x="{left:.1f}" y="{y:.1f}" width="{width:.1f}" height="16" rx="2"'
        yield f'<rect {where} fill="{_color(number)}"/>'
        if span is not None:
            a, b = (left + BARS * x / most for x in span)
            yield f'<path class="range" d="M{a:.1f} {y + 8:.1f}H{b:.1f}"/>'
        yield _text(left + max(width, BARS * max(span or (0.0,)) / most) + 8, y + 13, words)


def _curves(ran: Sequence[Measured], left: float, top: float, width: float) -> Iterator[str]:
    """The mean loss of each round over the time of training."""
    shown = [(n, m) for n, m in enumerate(ran) if m.losses]
    losses = [x for _, m in shown for x in m.losses if x == x and abs(x) != float("inf")]
    low, high = min(losses, default=0.0), max(losses, default=1.0)
    high = high if high > low else low + 1.0
    longest = max(m.ends[-1] for _, m in shown)
    yield _text(left, top, "LOSS OVER SECONDS OF TRAINING", "head")
    bottom = top + 12 + CHART

    def at(time: float, loss: float) -> tuple[float, float]:
        share = (loss - low) / (high - low)
        return left + width * time / longest, bottom - CHART * min(1.0, max(0.0, share))

    for k in range(5):
        loss = low + (high - low) * k / 4
        y = at(0, loss)[1]
        yield f'<path class="grid" d="M{left:.1f} {y:.1f}h{width:.1f}"/>'
        yield _text(left - 10, y + 4, f"{loss:.3g}", "", "end")
        x = longest * k / 4
        yield _text(at(x, low)[0], bottom + 18, time_text(x) if k else "0", "", "middle")
    for number, m in shown:
        points = [at(t, x) for t, x in zip(m.ends, m.losses, strict=True) if x == x]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        name = f"<title>{escape(str(m.candidate))}</title>"
        yield f'<path class="loss" stroke="{_color(number)}" d="M{path}">{name}</path>'
        yield from (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{_color(number)}"/>' for x, y in points
        )
