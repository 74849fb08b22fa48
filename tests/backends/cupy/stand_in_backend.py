"""A plug-in of pytest (`-p backends.cupy.stand_in_backend`): the backend cupy runs on the stand-in.

So `pytest --pyargs graphc.testing --backend cupy` and the commands of graphc run in tests.
"""

from __future__ import annotations

import graphc_cupy
from backends.cupy.stand_in import StandIn
from graphc_cupy import CupyBackend


def on_stand_in() -> CupyBackend:
    """The backend, with a stand-in for each engine."""
    return CupyBackend(gpu=lambda: StandIn().gpu, missing=lambda: None)


graphc_cupy.BACKEND = on_stand_in()
