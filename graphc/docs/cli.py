"""Generate `spec/cli.md`, the reference of the commands and options, from the command line's help.

`python -m graphc.docs.cli` prints the page.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import click

from graphc.cli import COMMANDS, group, main

HEAD = """\
# The command line

Generated from `graphc/cli` by `python -m graphc.docs.cli > spec/cli.md`.

    graphc COMMAND [OPTIONS] ARGUMENTS

`graphc -h` and `graphc COMMAND -h` print help. Results are written to standard output; progress,
warnings and errors to standard error. `graphc --version` prints the version, which is also
`graphc.__version__`.

Commands, options, files, strategies, backends and error codes are completed in bash, zsh and fish:

    eval "$(_GRAPHC_COMPLETE=bash_source graphc)"      # in ~/.bashrc
    eval "$(_GRAPHC_COMPLETE=zsh_source graphc)"       # in ~/.zshrc
    _GRAPHC_COMPLETE=fish_source graphc | source       # in ~/.config/fish/config.fish
"""


def cli_markdown() -> str:
    """The text of `spec/cli.md`."""
    context = click.Context(group, info_name="graphc")
    parts = [HEAD, _statuses()]
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        parts.append("\n".join(_command(command, name, context)))
    return "\n".join(parts)


def _statuses() -> str:
    """The table of exit statuses, taken from the docstring of `main`."""
    text = (inspect.getdoc(main) or "").partition("Status: ")[2].strip().rstrip(".")
    rows = [item.strip().partition(" ") for item in text.replace("\n", " ").split(",")]
    table = ["| exit status | meaning |", "| --- | --- |"]
    return "\n".join([*table, *(f"| {code} | {words} |" for code, _, words in rows)]) + "\n"


def _command(command: click.Command, name: str, parent: click.Context) -> Iterable[str]:
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"## graphc {name}\n"
    yield f"    graphc {name} {usage}\n"
    yield inspect.cleandoc(command.help or "") + "\n"
    rows = [_option(p, context) for p in command.params if isinstance(p, click.Option)]
    if rows:
        yield "| option | |"
        yield "| --- | --- |"
        yield from rows
        yield ""


def _option(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    assert record is not None
    names, text = (" ".join(part.split()).replace("|", "\\|") for part in record)
    return f"| `{names}` | {text} |"


if __name__ == "__main__":
    print(cli_markdown(), end="")
