"""`spec/errors.md`: every error code with what `graphc explain` says of it.

`python -m graphc.docs.errors` prints it.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphc.support.error_codes import codes, families

HEAD = """\
# Errors

Generated from `graphc/support/error_codes.toml` by `python -m graphc.docs.errors > spec/errors.md`.

An error has a code, a message, mostly the place in the source, and mostly a help.
`graphc explain CODE` prints the text below.
"""


def errors_markdown() -> str:
    """The whole of `spec/errors.md`."""
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
