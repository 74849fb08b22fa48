"""A bar in a table's code is written \\| for GitHub; Python-Markdown would show the backslash."""

from __future__ import annotations

import re


def on_page_markdown(markdown: str, **_: object) -> str:
    """Called by mkdocs for every page."""
    return re.sub(r"`[^`\n]+`", lambda code: code[0].replace(r"\|", "|"), markdown)
