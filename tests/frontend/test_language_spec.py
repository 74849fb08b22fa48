"""spec/language.md says what the language does: its examples compile, or fail as they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphc.frontend.language.load import module_of_source
from graphc.passes.differentiation.loss_checks import check_losses
from graphc.support.errors import GraphcError
from graphc.syntax.format import format_source
from graphc.syntax.parse import parse_source
from graphc.syntax.tree import StepStatement

SPEC = (Path(__file__).parents[2] / "spec" / "language.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```gc *([^\n]*)\n(.*?)```", SPEC, re.DOTALL)
FILES = {info.partition("=")[2]: text for info, text in BLOCKS if info.startswith("file=")}
GOOD = [text for info, text in BLOCKS if not info.startswith("error=")]
BAD = [(info.partition("=")[2], text) for info, text in BLOCKS if info.startswith("error=")]


def compile_text(text: str, folder: Path) -> None:
    """Parse, and lower what has a step, with the files of the spec beside it."""
    for name, content in FILES.items():
        (folder / name).write_text(content, encoding="utf-8")
    tree = parse_source(text)
    if any(isinstance(item, StepStatement) for item in tree.items):
        module = module_of_source(text, str(folder / "example.gc"), {"batch": 8})
        check_losses(module.train)


@pytest.mark.parametrize("text", GOOD)
def test_good_examples_compile(text: str, tmp_path: Path) -> None:
    compile_text(text, tmp_path)


@pytest.mark.parametrize("text", GOOD)
def test_good_examples_are_formatted(text: str) -> None:
    assert format_source(text) == text


@pytest.mark.parametrize(("code", "text"), BAD)
def test_bad_examples_fail_as_they_say(code: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(GraphcError) as caught:
        compile_text(text, tmp_path)
    assert caught.value.code == code, caught.value.render()


def test_the_reserved_words_are_those_of_the_grammar() -> None:
    grammar = (Path(parse_source.__code__.co_filename).parent / "gc.lark").read_text("utf-8")
    excluded = re.search(r"NAME: /\(\?!\(\?:([^)]*)\)", grammar)
    assert excluded is not None
    listed = re.search(r"Reserved words:\n\n(.*?)\n\n", SPEC, re.DOTALL)
    assert listed is not None
    assert listed.group(1).split() == excluded.group(1).split("|")
