"""Fenced blocks of the documents, run: `console` blocks are commands and what they print.

    ```console
    $ graphc show examples/linear.gc --diff
    ...
    ```

Numbers with a decimal point may differ a little from machine to machine; seconds, hashes and
rounding errors are not compared at all.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from graphc.cli import group

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\d+\.\d+(?:e[-+]\d+)?")
TINY = 1e-4  # below, a number is a rounding error


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and where the text begins in the file."""

    language: str
    text: str
    start: int


def blocks(file: Path, language: str) -> list[Block]:
    """The fenced blocks of a language in a document."""
    text = file.read_text(encoding="utf-8")
    found = [Block(m.group(1), m.group(2), m.start(2)) for m in FENCE.finditer(text)]
    return [b for b in found if b.language == language]


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """(command, what it shall print) for every `$ ` line."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def printed(command: str) -> str:
    """What a graphc command prints, on stdout."""
    words = shlex.split(command)
    assert words[0] == "graphc", command
    result = CliRunner().invoke(group, words[1:])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def workplace(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go to a folder that has the examples, and nothing else, and may be written to."""
    (folder / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(folder)


def check(file: Path, update: bool) -> int:
    """Run every command of a document and compare; the number of commands. update: write anew."""
    count = 0
    text = file.read_text(encoding="utf-8")
    for block in blocks(file, "console"):
        made = ""
        for command, expected in commands(block):
            got = printed(command)
            same = alike(expected, got)
            assert same or update, f"{file.name}: `{command}` prints\n{got}\nnot\n{expected}"
            made += f"$ {command}\n{expected if same else got}"
            count += 1
        text = text.replace(block.text, made)
    if update:
        file.write_text(text, encoding="utf-8")
    return count


def alike(expected: str, got: str) -> bool:
    """Equal, but for seconds, hashes, memory, and the last digits of numbers."""
    a, b = plain(expected), plain(got)
    if NUMBER.sub("0", a) != NUMBER.sub("0", b):
        return False
    pairs = zip(NUMBER.findall(a), NUMBER.findall(b), strict=True)
    return all(abs(float(x) - float(y)) <= 0.1 * abs(float(x)) + TINY for x, y in pairs)


def plain(text: str) -> str:
    text = re.sub(r"\b\d+\.\d+ s\b", "some s", text)
    text = re.sub(r"\b[0-9a-f]{16,64}\b", "hash", text)
    text = re.sub(r"\b[\d,]+ bytes( at most)? on\b", "some bytes on", text)  # depends on threads
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
