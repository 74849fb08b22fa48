"""Files that a program imports from elsewhere: read without asking, and never shown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from graphc.frontend.language.load import load_module
from graphc.support.errors import GraphcError, Span, source_line

SECRETS = [
    b"s3cret\n", b"root:s3cret:19000:0:99999:7:::\n", b"const s3cret = = 1\n", b"'s3cret\n", b"(s3cret\n",
    b"s3cret \xff\n", b"s3cret\x00\n", b"let s3cret = 1\n", b"fn f(s3cret, s3cret) = 1\n",
    b"const a = 1 s3cret\n", b"s3cret" * 10_000,
]  # fmt: skip
STEP = "step s(x: f32[batch]) { report y = mean(x) }"


def program(tmp_path: Path, name: str) -> Path:
    (tmp_path / "own").mkdir(exist_ok=True)
    main = tmp_path / "own" / "main.gc"
    main.write_text(f'import "{name}" as other\n{STEP}\n')
    return main


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("way", ["absolute", "relative", "link"])
def test_an_error_in_a_file_from_elsewhere_repeats_nothing_of_it(
    secret: bytes, way: str, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_bytes(secret)
    name = {"absolute": str(tmp_path / "secret"), "relative": "../secret", "link": "link.gc"}[way]
    main = program(tmp_path, name)
    (tmp_path / "own" / "link.gc").symlink_to("../secret")
    with pytest.raises(GraphcError) as caught:
        load_module(main)
    text = caught.value.render()
    assert "s3cret" not in text and f'import "{name}" as other' in text
    assert "is outside the program's folder" in text


def test_lines_of_an_imported_program_from_elsewhere_are_not_shown_either(tmp_path: Path) -> None:
    """It is a program, then, and a message may name what it declares; its lines are not shown."""
    (tmp_path / "lib.gc").write_text("# a long way\nconst other = 1 + 'a'  # s3cret\n")
    with pytest.raises(GraphcError) as caught:
        load_module(program(tmp_path, "../lib.gc"))
    text = caught.value.render()
    assert "lib.gc:2" in text and "s3cret" not in text


@pytest.mark.parametrize("name", ["lib.gc", "deep/lib.gc"])
def test_lines_of_the_programs_own_files_are_shown(name: str, tmp_path: Path) -> None:
    main = program(tmp_path, name)
    file = tmp_path / "own" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("const a = = 1\n")
    with pytest.raises(GraphcError) as caught:
        load_module(main)
    assert "const a = = 1" in caught.value.render() and "imported here" in caught.value.render()


def test_a_file_that_was_hidden_is_shown_when_it_is_the_program(tmp_path: Path) -> None:
    (tmp_path / "lib.gc").write_text("const a = = 1\n")
    for file, shown in ((program(tmp_path, "../lib.gc"), False), (tmp_path / "lib.gc", True)):
        with pytest.raises(GraphcError) as caught:
            load_module(file)
        assert ("const a = = 1" in caught.value.render()) == shown


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "pipe", "."])
def test_only_regular_files_are_imported(path: str, tmp_path: Path) -> None:
    main = program(tmp_path, path)
    os.mkfifo(tmp_path / "own" / "pipe")
    with pytest.raises(GraphcError, match="cannot read"):
        load_module(main)


def test_the_place_of_a_node_of_a_file_that_is_no_source_shows_no_line(tmp_path: Path) -> None:
    """A plan or a graph in text form may name any file as the place of a node."""
    (tmp_path / "secret").write_text("s3cret\n")
    assert source_line(Span(str(tmp_path / "secret"), 1)) is None
    assert source_line(Span("/etc/passwd", 1)) is None
