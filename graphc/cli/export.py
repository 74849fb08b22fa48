"""The command `export`: from a checkpoint to weights for other programs."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("export")
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True,
    help="The .safetensors file to write.",
)  # fmt: skip
@click.option(
    "--names", type=click.Path(path_type=Path), metavar="JSON",
    help='What variables are called there: a file such as {"w1": "fc1.weight.T"}; .T is the '
    "transpose, and others are left out. Default: all, by their own names.",
)  # fmt: skip
def export_command(checkpoint: Path, output: Path, names: Path | None) -> None:
    """Write the variables of CHECKPOINT, a file or a folder, for other programs.

    torch and Hugging Face's libraries read the file with their own safetensors functions.
    """
    from graphc.cli.run import shown_warnings
    from graphc.runtime.checkpoints.weights import read_names, read_weights, write_weights
    from graphc.support.files import check_writable

    check_writable(output, "G0509")
    with shown_warnings():
        values = read_weights(checkpoint)
    write_weights(output, values, read_names(names) if names is not None else None)
    click.echo(f"wrote {output}")
