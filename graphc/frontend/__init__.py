"""The language: .gc text to syntax tree and back to text."""

from __future__ import annotations

from graphc.frontend.parse import parse_file, parse_source, parse_strategy

__all__ = ["parse_file", "parse_source", "parse_strategy"]
