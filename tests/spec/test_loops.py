"""The masked mean of spec/ir.md, before and after: what is printed is what the compiler makes."""

from __future__ import annotations

import re
from pathlib import Path

from graphc.analysis.microbatch_loops import assigned
from graphc.compiler.pipeline import distribution, partitioning, run_passes
from graphc.strategies import parse_strategy
from graphc.text import parse_ir, print_ir

FILE = Path(__file__).parents[2] / "spec" / "ir.md"
BLOCK = re.compile(r"```ir (before|after)\n(.*?)```", re.DOTALL)


def after(before: str) -> str:
    how = parse_strategy("accumulate(2)")
    steps = [*distribution(how), *partitioning(how)]
    return print_ir(run_passes(parse_ir(before), steps))


def test_the_graph_after_is_what_the_compiler_makes_of_the_graph_before(update: bool) -> None:
    text = FILE.read_text(encoding="utf-8")
    blocks = dict(BLOCK.findall(text))
    made = after(blocks["before"])
    if update:
        FILE.write_text(text.replace(f"```ir after\n{blocks['after']}", f"```ir after\n{made}"))
    assert blocks["after"] == made or update


def test_the_masked_mean_has_two_loops() -> None:
    blocks = dict(BLOCK.findall(FILE.read_text(encoding="utf-8")))
    assert assigned(parse_ir(blocks["after"])).loops == 2
