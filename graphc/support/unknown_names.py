"""The error of a name that a module of graphc, or one of its objects, does not have."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphc.support.caller import user_span
from graphc.support.errors import UnknownNameError, did_you_mean
from graphc.support.hints import hints


def unknown_name(
    text: str, name: str, help: Callable[[], str], code: str = "G0836"
) -> AttributeError:
    """The error `text`; of a private name, for which tools look on every object, Python's own."""
    if name.startswith("_"):
        return AttributeError(name)
    return UnknownNameError(code, text, span=user_span(), help=help())


def help_for(name: str, place: str, known: Sequence[str], otherwise: str = "") -> str:
    """What to write instead: a table of hints says it, or a known name is nearly the same.

    otherwise: what to say if neither is so, in the place of a list of the known names
    """
    similar = hints(place).get(name) or did_you_mean(name, tuple(known))
    return similar or otherwise or f"there are: {', '.join(known)}"


__all__ = ["help_for", "unknown_name"]
