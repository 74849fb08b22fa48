"""Imported first in each process of a job (`sitecustomize`): the backend cupy runs on what stands
for a machine with two GPUs, and for NCCL between the processes."""

from __future__ import annotations

import graphc_cupy
from backends.cupy.stand_in_gpus import StandInMachine
from backends.cupy.stand_in_nccl_far import FarWorld
from graphc_cupy import CupyBackend

GPUS = 2


def of_this_process() -> CupyBackend:
    return StandInMachine(GPUS, FarWorld()).backend()


graphc_cupy.BACKEND = of_this_process()
