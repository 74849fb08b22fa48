"""The text of a graph that was damaged is refused with its place, or it is a graph."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from hostile.attack import bad
from hostile.test_plans import attacked

from graphc.cli import group
from graphc.support.errors import GraphcError
from graphc.verify.reading import read_ir

SAMPLE, MANY = 12, 4000

TEXT = """graphc-ir 1
graph g mesh(data=2) {
  param w : f32[3]
  %x : f32[3] = input {source_name="x"}
  %w : f32[3] = variable {source_name="w"}
  %y : f32[3] = add %x, %w
  output y = %y
  update w = %y
}
"""
BROKEN = {
    "an unknown operand": ("add %x, %w", "add %x, %v", "G0912", 6, "%y"),
    "a cycle": ("add %x, %w", "add %y, %w", "G0912", 6, "%y"),
    "a type": ("%y : f32[3]", "%y : f32[4]", "G0918", 6, "%y"),
    "an op": ("add %x", "ad %x", "G0904", 6, "ad"),
    "an attribute": ('source_name="x"', 'name="x"', "G0904", 4, "name"),
    "an operand too few": ("add %x, %w", "add %x", "G0918", 6, "%y"),
    "a name twice": ("%w : f32[3]", "%x : f32[3]", "G0903", 5, "%x"),
    "a negative dim": ("%x : f32[3]", "%x : f32[-3]", "G0913", 4, "%x"),
    "an output of nothing": ("output y = %y", "output y = %z", "G0919", 7, "output y"),
    "an update of nothing": ("update w = %y", "update v = %y", "G0919", 8, "update v"),
    "a variable's type": ("param w : f32[3]", "param w : f32[2]", "G0915", 5, "%w"),
    "no place": ("data=2", "data=0", "G0905", 2, "0"),
    "too many places": ("data=2", "data=99999999999", "G0905", 2, "99999999999"),
    "an axis": ("%x : f32[3] =", "%x : f32[3] {rows:S(0)} =", "G0921", 4, "%x"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_text_is_refused_at_its_place(name: str) -> None:
    old, new, code, line, word = BROKEN[name]
    text = TEXT.replace(old, new, 1)
    assert text != TEXT
    with pytest.raises(GraphcError) as caught:
        read_ir(text, "g.gir")
    error, span = caught.value, caught.value.span
    assert (error.code, span and span.line) == (code, line), error.render()
    assert span is not None
    there = text.split("\n")[line - 1][span.col - 1 :]
    assert there.startswith(word)
    assert "^" in error.render() and f"--> g.gir:{line}:" in error.render()


@pytest.mark.parametrize("command", [["show"], ["show", "--format", "svg"], ["opt", "-p", "cse"]])
def test_the_command_line_says_where_a_text_is_wrong(command: list[str], tmp_path: Path) -> None:
    file = tmp_path / "g.gir"
    file.write_text(TEXT.replace("add %x, %w", "add %x, %v"))
    result = CliRunner().invoke(group, [command[0], str(file), *command[1:]])
    assert isinstance(result.exception, GraphcError)
    assert f"{file}:6:3" in result.exception.render()


def test_damaged_texts_are_refused_or_read(tmp_path: Path) -> None:
    found = attacked(tmp_path, 0, SAMPLE, "texts")
    assert len(found) == SAMPLE and not [x for x in found if bad(x)]


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("part", range(10))
def test_thousands_of_damaged_texts_are_refused_or_read(tmp_path: Path, part: int) -> None:
    each = MANY // 10
    found = attacked(tmp_path, part * each, (part + 1) * each, "texts")
    assert not [x for x in found if bad(x)]
