"""Patterns of names of params: globs, and prefixes `layer` of `layer.w`."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from graphc.ir.op import require
from graphc.support.errors import GraphcError, did_you_mean

Patterns: TypeAlias = str | Sequence[str]  # one or several; records hold a tuple


def is_named(name: str, glob: str) -> bool:
    """Whether a param matches a glob, or is in the family `glob.`"""
    return fnmatchcase(name, glob) or name.startswith(f"{glob}.")


def patterns(what: str, given: Any) -> tuple[str, ...]:
    """One pattern or several as a tuple. Raises G0206."""
    globs = (given,) if isinstance(given, str) else given
    good = isinstance(globs, list | tuple) and all(isinstance(glob, str) for glob in globs)
    require(good, f"{what} takes patterns of names, not {given!r}", code="G0206")
    return tuple(globs)


def check_used(what: str, glob: str, names: Sequence[str]) -> None:
    """Raise G0302 if a pattern matches no param; the one that matches all need not."""
    if glob != "*" and not any(is_named(name, glob) for name in names):
        text = f"{what}: '{glob}' matches no parameter"
        raise GraphcError("G0302", text, help=did_you_mean(glob, list(names)))
