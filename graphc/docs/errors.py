"""Generate `spec/errors.md`: every error code, with the text that `graphc explain` prints.

`python -m graphc.docs.errors` prints the page.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphc.support.errors import codes, families

HEAD = """\
# Errors

Generated from `graphc/support/error_codes.toml` by `python -m graphc.docs.errors > spec/errors.md`.

An error has a code and a message, and usually a position in the source and a help line.
`graphc explain CODE` prints the text below.
"""


def errors_markdown() -> str:
    """The text of `spec/errors.md`."""
    return "\n".join([HEAD, *_lines()])


def _lines() -> Iterable[str]:
    family = ""
    for code, entry in codes().items():
        if code[:3] != family:
            family = code[:3]
            yield f"## {family}: {families()[family]}\n"
        yield f"**{code}: {entry.title}.** {' '.join(entry.text.split())}\n"


if __name__ == "__main__":
    print(errors_markdown(), end="")
