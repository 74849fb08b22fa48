"""A page as a value: a notebook shows it in place, and it can be saved."""

from __future__ import annotations

from dataclasses import field
from html import escape
from pathlib import Path

from graphc.support.dataclass import dataclass
from graphc.support.files import write_whole

HEIGHT = 680  # pixels, in a notebook


@dataclass(frozen=True)
class HtmlPage:
    """A page. A notebook shows it in place; `save` writes it to a file, which opens from disk."""

    html: str = field(repr=False)

    def save(self, path: str | Path) -> None:
        """Write the page to a file. Raises G0512 if that fails."""
        write_whole(path, self.html)

    def _repr_html_(self) -> str:
        """The page in a frame: its scripts reach nothing around it."""
        return (
            f'<iframe sandbox="allow-scripts" srcdoc="{escape(self.html)}" '
            f'style="width:100%;height:{HEIGHT}px;border:1px solid #8884"></iframe>'
        )
