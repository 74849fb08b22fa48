"""Completion in the shells: asked as they ask, and by the shells themselves where they are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import graphc
from graphc.cli import COMMANDS
from graphc.strategies import STRATEGIES

Process = Callable[..., Any]


@pytest.fixture
def call(call: Process, monkeypatch: pytest.MonkeyPatch) -> Process:
    """What graphc completes: call("run", "--str") -> the words that may stand for the last one."""

    def run(*words: str) -> list[str]:
        monkeypatch.setenv("_GRAPHC_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", " ".join(["graphc", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        result = call()
        assert (result.status, result.err) == (0, "")
        return [line.partition(",")[2] for line in result.out.splitlines()]

    return run


def test_commands_options_and_names_are_completed(call: Process) -> None:
    assert set(call("")) == set(COMMANDS)
    assert call("expo") == ["export"]
    assert "--strategy" in call("run", "--s")
    assert call("run", "x.gc", "--sparse", "o") == ["on", "off"]
    assert set(call("run", "--strategy", "")) == set(STRATEGIES)
    assert call("run", "--strategy", "mirr") == ["mirrored"]
    assert call("run", "--strategy", "'mirrored(4) * acc") == ["mirrored(4) * accumulate"]
    assert set(call("run", "--backend", "")) >= {"numpy", "reference"}
    assert set(call("run", "--transport", "")) >= {"local", "mpi"}
    assert call("explain", "g020") and all(
        code.startswith("G020") for code in call("explain", "g020")
    )
    assert call("ops", "einsu") == ["einsum"]
    assert call("show", "x.gc", "--after", "sour") == ["source"]


def test_an_unknown_shell_is_named(process: Process) -> None:
    result = process("run", env={"_GRAPHC_COMPLETE": "csh_source"})
    assert result.status == 2
    assert "csh_source means nothing; known: bash_source, zsh_source, fish_source" in result.err


# In each shell: the completion of `graphc run --strategy mirr`, one word a line.
SCRIPTS = {
    "bash": 'eval "$(_GRAPHC_COMPLETE=bash_source graphc)"; COMP_WORDS=(graphc run --strategy mirr); '
            'COMP_CWORD=3; _graphc_completion graphc graphc; printf "%s\\n" "${COMPREPLY[@]}"',
    "zsh": 'autoload -U compinit; compinit -D; eval "$(_GRAPHC_COMPLETE=zsh_source graphc)"; '
           '_describe() { print -l ${(P)3}; }; '
           'words=(graphc run --strategy mirr); CURRENT=4; _graphc_completion',
    "fish": "_GRAPHC_COMPLETE=fish_source graphc | source; complete -C 'graphc run --strategy mirr'",
}  # fmt: skip


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_shell_completes(shell: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    command = tmp_path / "graphc"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m graphc "$@"\n')
    command.chmod(0o755)
    how = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run(
        [program, *how, "-c", SCRIPTS[shell]], capture_output=True, text=True, timeout=120,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.split()[0].startswith("mirrored"), done.stdout


def test_the_version_is_that_of_the_package(process: Process) -> None:
    assert process("--version").out == f"graphc, version {graphc.__version__}\n"
