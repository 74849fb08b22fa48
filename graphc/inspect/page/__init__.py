"""A training step as one page of HTML that opens from disk: `to_html(history)`.

`history.record` compiles a module and keeps what every pass and stage left; `data` makes one JSON
value of it; `page.html`, `page.css` and the scripts beside them show that value in a browser.
"""

from graphc.inspect.page.document import to_html
from graphc.inspect.page.history import (
    History,
    history_of_change,
    history_of_graph,
    record,
    stage_names,
)
from graphc.inspect.page.measured import MeasuredStep, parse_profile
from graphc.inspect.page.shown import HtmlPage

__all__ = [
    "History", "HtmlPage", "MeasuredStep", "history_of_change", "history_of_graph",
    "parse_profile", "record", "stage_names", "to_html",
]  # fmt: skip
