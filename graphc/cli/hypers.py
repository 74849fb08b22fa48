"""`--set NAME=VALUE`: the hyperparameters of a training from the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from graphc.runtime.trainer import Trainer

hyper_option = click.option(
    "--set", "hyper", metavar="NAME=VALUE", multiple=True,
    help="Set a hyperparameter of the step, such as lr=3e-4. May be given several times.",
)  # fmt: skip


def set_hypers(trainer: Trainer, given: tuple[str, ...]) -> None:
    """Set the hyperparameters of `--set NAME=VALUE`. Raises G0571, G0572."""
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"'{text}' is not NAME=VALUE", param_hint="--set")
        try:
            trainer.hyper[name.strip()] = float(value)
        except ValueError:
            words = f"'{value}' in '{text}' is not a number"
            raise click.BadParameter(words, param_hint="--set") from None
