"""What Python-Markdown and Pygments would show otherwise than GitHub does."""

from __future__ import annotations

import re


def on_page_markdown(markdown: str, **_: object) -> str:
    """Called by mkdocs for every page.

    A bar in a table's code is written with a backslash, which would be shown. Commands with what
    they print are plain text: as a `console`, names such as %w would be prompts.
    """
    markdown = re.sub(r"`[^`\n]+`", lambda code: code[0].replace(r"\|", "|"), markdown)
    return re.sub(r"^```console$", "```text", markdown, flags=re.MULTILINE)
