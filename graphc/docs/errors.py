"""`spec/errors.md`: every error code with what `graphc explain` says of it.

`python -m graphc.docs.errors` prints it.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphc.support import error_codes
from graphc.support.error_codes import CODES

HEAD = """\
# Errors

Generated from `graphc/support/error_codes.py` by `python -m graphc.docs.errors > spec/errors.md`.

An error has a code, a message, mostly the place in the source, and mostly a help.
`graphc explain CODE` prints the text below.
"""


def errors_markdown() -> str:
    """The whole of `spec/errors.md`."""
    return "\n".join([HEAD, *_lines()])


def _lines() -> Iterable[str]:
    families = _families()
    family = ""
    for code, entry in sorted(CODES.items()):
        if code[:3] != family:
            family = code[:3]
            yield f"## {family}: {families[family]}\n"
        yield f"**{code}: {entry.title}.** {' '.join(entry.text.split())}\n"


def _families() -> dict[str, str]:
    """`G01` -> `language`, from the docstring of the codes."""
    text = (error_codes.__doc__ or "").split("\n\n")[1].splitlines()
    items = " ".join(line for line in text if line.startswith("G")).rstrip(".").split("·")
    return {name: title for name, _, title in (item.strip().partition(" ") for item in items)}


if __name__ == "__main__":
    print(errors_markdown(), end="")
