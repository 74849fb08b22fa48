"""A plug-in of pytest (`-p backends.cupy.stand_in_gpus_backend`): the backend cupy runs on what stands
for a machine with four GPUs."""

from __future__ import annotations

import graphc_cupy
from backends.cupy.stand_in import StandIn
from backends.cupy.stand_in_gpus import StandInMachine
from graphc_cupy import CupyBackend

GPUS = 4


def on_four_gpus() -> CupyBackend:
    """The backend, with a machine for each engine."""
    return CupyBackend(
        gpu=lambda: StandIn().gpu, gpus=lambda: StandInMachine(GPUS).every, missing=lambda: None
    )


graphc_cupy.BACKEND = on_four_gpus()
