"""Hostile command lines, by seed: made of what each command takes, and of what it does not."""

from __future__ import annotations

import random
from pathlib import Path

import click

from graphc.cli import COMMANDS, group

FILES = (
    "line.gc", "line.gc", "line.gc", "line.gc", "line.gir", "line.plan", "line.safetensors", "who.json",
    "bad.gc", "bad.gir", "bad.plan", "bad.safetensors", "bad.json", "empty.gc", "empty.gir", "empty.plan",
    "no.gc", "no.plan", "folder", ".", "/", "", " ", "-", "/dev/null", "/dev/zero", "/dev/full",
    "zero.gc", "zero.gir", "zero.plan", "zero.safetensors", "zero.json", "loop.gc", "train.npz",
    "no/such/folder/x.gc", "line.gc/x", "a" * 300, "\udcff\udcfe.gc", "caf\u00e9.gc", "\x1b[2J.gc", "a\nb.gc",
    "~", "$HOME", "*.gc", "closed/x.plan",
)  # fmt: skip
TEXTS = (
    "", " ", "x", "-1", "0", "1", "2", "1.5", "1e3", "1e999", "nan", "inf", "-0", "0x10", "1_0", "\u0663", "2,",
    ",", "1,,2", "1,2", "2,2", "9" * 30, "-" + "9" * 30, "\udcff", "\x1b[2J", "a\nb", "%s", "{n}", "{", "{0}", "{n!r}",
    "mirrored(2)", "mirrored(0)", "mirrored(", "mirrored({n})", "tensor_split({n})", "mirrored(2) * accumulate(2)",
    "parameter_server(2, 1)", "parameter_server(2, 1, staleness=1)", "local_sgd(2, every=2)", "reproducible(8)",
    "mirrored(" + "9" * 30 + ")", "nothing()", "__import__('os')", "tree", "add_n", "devices=tree", "devices=",
    "2GiB", "0", "1B", "-1GiB", "1e3GB", "9" * 20 + "T", "numpy", "reference", "all", "none", "cse", "cse,dce",
    "differentiate{order=tree}", "differentiate{", "cse{x=1}", "source", "partition", "bucket", "train", "evaluate",
    "ir", "dot", "svg", "json", "mermaid", "G0203", "g0203", "G9999", "auto", "on", "off", "add" * 100,
)  # fmt: skip
NO_OPTIONS = (
    "--nothing",
    "--",
    "-",
    "--=",
    "-x",
    "--strategy=",
    "---",
    "\udcff",
    "--sav",
    "-h",
    "--version",
)


def line(seed: int) -> list[str]:
    """The words behind `graphc`."""
    rng = random.Random(f"line {seed}")
    name = rng.choice((*COMMANDS, "run", "check", "compile", "show"))
    if rng.random() < 0.04:
        return rng.choice(
            ([], [name[:-1]], [""], ["\udcff"], ["--nothing"], [name.upper(), "line.gc"])
        )
    command = group.get_command(click.Context(group), name)
    assert command is not None
    words: list[str] = []
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            words += [_word(parameter, rng) for _ in range(rng.choice((1, 1, 1, 1, 1, 1, 0, 2)))]
    options = [p for p in command.params if isinstance(p, click.Option)]
    for option in rng.sample(options, min(len(options), rng.choice((0, 1, 1, 2, 3)))):
        words += _option(option, rng) * rng.choice((1, 1, 1, 1, 2))
    if rng.random() < 0.1:
        words.insert(rng.randrange(len(words) + 1), rng.choice(NO_OPTIONS))
    return [name, *words]


def _option(option: click.Option, rng: random.Random) -> list[str]:
    flag = rng.choice(option.opts)
    if option.is_flag:
        return [flag] if rng.random() < 0.95 else [f"{flag}=1"]
    value = _word(option, rng)
    if rng.random() < 0.05:
        return [flag]
    return [f"{flag}={value}"] if flag.startswith("--") and rng.random() < 0.2 else [flag, value]


def _word(parameter: click.Parameter, rng: random.Random) -> str:
    """A file where a file is meant, mostly; a word that fits something; rarely anything."""
    if parameter.name in ("steps", "epochs"):
        return rng.choice(("-1", "0", "1", "2", "x", "", "1.5", "9" * 30 + "x", "\udcff"))
    is_file = isinstance(parameter.type, click.Path)
    return rng.choice(FILES if is_file == (rng.random() < 0.9) else TEXTS)


def files(folder: Path) -> None:
    """What the words name, next to line.gc and its data."""
    for ending in ("gc", "gir", "plan", "safetensors", "json"):
        (folder / f"bad.{ending}").write_bytes(b"\x00\xff(((" + bytes(range(256)))
        (folder / f"empty.{ending}").write_bytes(b"")
        (folder / f"zero.{ending}").symlink_to("/dev/zero")
    (folder / "loop.gc").symlink_to("loop.gc")
    (folder / "folder").mkdir()
    (folder / "closed").mkdir(mode=0)
