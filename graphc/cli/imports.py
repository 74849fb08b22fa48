"""The option --import: modules of the user's that register custom ops."""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from graphc.support.errors import GraphcError


def _imported(_: click.Context, __: click.Parameter, names: tuple[str, ...]) -> None:
    """Import the modules, also from the working directory. Raises G0513."""
    if names and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last: nothing there hides a module that is installed
    for name in names:
        try:
            import_module(name)
        except Exception as error:
            text = f"--import {name} fails: {type(error).__name__}: {error}"
            raise GraphcError("G0513", text) from error


import_option = click.option(
    "--import", metavar="MODULE", multiple=True, expose_value=False, callback=_imported,
    help="Import a Python module, which registers custom ops that a plan calls; may be repeated.",
)  # fmt: skip
