"""One HTML document of the page's parts and its data."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

from graphc.inspect.page.data import page_data
from graphc.inspect.page.history import History
from graphc.inspect.page.measured import MeasuredStep

SCRIPTS = ("model.js", "layout.js", "draw.js", "panels.js", "views.js", "app.js")


def to_html(
    history: History, after: str = "", level: str = "", measured: MeasuredStep | None = None
) -> str:
    """The page: it needs no network and no other file.

    after: the pass, or the stage of the lowering, that it opens at; '': the last pass
    level: how much of the graph it shows at first, a `Level`; '': what fits on a screen
    measured: what a profile of the step has measured
    """
    return document(page_data(history, measured) | {"after": after, "level": level})


def document(data: dict[str, Any]) -> str:
    """The page of this data. Nothing in the data is read as HTML or as a script."""
    title = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in data["title"])
    style, script = _part("page.css"), "\n".join(map(_part, SCRIPTS))
    parts = {
        "policy": f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'",  # nothing but our own script runs, and no network
        "title": escape(f"{title} · graphc"),
        "style": style,
        "script": script,
        "data": _inert(json.dumps(data, separators=(",", ":"), allow_nan=False)),
    }
    return re.sub(r"{{(\w+)}}", lambda m: parts[m[1]], _part("page.html"))


def _hash(text: str) -> str:
    digest = b64encode(sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _inert(text: str) -> str:
    """JSON that can't end the script element it stands in, nor begin a comment in it."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
