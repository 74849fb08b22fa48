"""The language: .gc text to syntax tree and back to text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphc.syntax.parse import parse_file, parse_source, parse_strategy

__all__ = ["parse_file", "parse_source", "parse_strategy"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'graphc.frontend' has no attribute '{name}'")
    from graphc.syntax import parse

    return getattr(parse, name)
