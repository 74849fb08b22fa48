"""The options of `graphc run` that say what runs the roles of an asynchronous training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from graphc.cli.options import keep, together

if TYPE_CHECKING:
    from graphc.runtime.asynchronous.drivers import DriverPlugin

driver_options = together(
    click.option(
        "--driver", default="threads", show_default=True, expose_value=False, callback=keep,
        help="Where the servers and workers of an asynchronous strategy run: threads of this "
        "process, or ray; `graphc backends` lists the drivers.",
    ),
    click.option(
        "--driver-address", metavar="ADDRESS", expose_value=False, callback=keep,
        help="Cluster that the driver connects to, such as 10.0.0.1:6379, or auto. Default: "
        "processes on this machine.",
    ),
    click.option(
        "--journals", type=click.Path(path_type=Path), expose_value=False, callback=keep,
        help="Folder for the servers' journals, from which a server that is killed comes back. "
        "All machines of a cluster must have it. Default: a temporary one.",
    ),
)  # fmt: skip


def chosen_driver() -> str | DriverPlugin:
    """The driver that the options of the running command say. Raises G0577, G0701."""
    from graphc.runtime.backends import plugins

    meta = click.get_current_context().meta
    name: str = meta["graphc.driver"]
    address, journals = meta["graphc.driver_address"], meta["graphc.journals"]
    if address is None and journals is None:
        return name
    return plugins.driver(name).at(address, journals)
