"""spec/ir.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphc.text import parse_ir, print_ir
from graphc.verify import laws_table, verify

SPEC = (Path(__file__).parents[2] / "spec" / "ir.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```ir\n(.*?)```", SPEC, re.DOTALL)


@pytest.mark.parametrize("text", BLOCKS)
def test_the_example_is_canonical_and_legal(text: str) -> None:
    graph = parse_ir(text)
    assert print_ir(graph, locs=True) == text
    verify(graph, "placed")


def test_the_laws_are_those_of_the_verifier() -> None:
    assert laws_table() in SPEC
