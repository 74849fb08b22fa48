"""Every pass's docstring shows before and after as IR text, and the block is run."""

from __future__ import annotations

import re

import pytest

import graphc.compiler.pipeline  # noqa: F401  registers the passes
from graphc.passes.base import PASSES, parse_passes

SHOWN = [
    "dce", "resolve", "cse", "simplify", "fold_constants", "differentiate", "worker_part",
    "server_part", "local_step", "place", "partition",
]  # fmt: skip


@pytest.mark.parametrize("name", sorted(PASSES))
def test_every_pass_states_its_promise(name: str) -> None:
    assert (PASSES[name].__doc__ or "").strip()


@pytest.mark.parametrize("name", SHOWN)
def test_docstring_shows_before_and_after(name: str) -> None:
    doc = PASSES[name].__doc__ or ""
    assert re.search(r"before:.*\n\s+after:", doc), f"{name} shows no before and after"


def test_passes_print_as_they_are_parsed() -> None:
    text = "cse,differentiate{order=tree},partition{orders=data=tree,short=True},dce"
    assert ",".join(map(str, parse_passes(text))) == text
