"""Single collectives on the GPUs of this process, without a program."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from graphc_cupy.exchange_plans import planned
from graphc_cupy.exchanges import Exchanges
from graphc_cupy.library import Gpu
from graphc_cupy.memory import DeviceBlock
from graphc_cupy.nccl import NcclGroups
from graphc_cupy.plan_maker import ExchangeEnds

from graphc.ir.types import DType
from graphc.runtime.transports.transport import CollectiveCall


class OnGpus:
    """What exchanges need of programs on some GPUs of this process."""

    def __init__(self, gpus: Sequence[Gpu], patience: float = 60.0) -> None:
        self.gpus = gpus
        self.shares: Any = {
            k: SimpleNamespace(
                gpu=gpu, stream=gpu.cuda.Stream(non_blocking=True), ranks=range(k, k + 1)
            )
            for k, gpu in enumerate(gpus)
        }
        numbers = {k: gpu.cuda.number for k, gpu in enumerate(gpus)}
        nccl = NcclGroups(gpus[0].cuda, numbers, (0,), patience)
        self.exchanges = Exchanges(self.shares, nccl)
        self.rooms = [self.exchanges.rooms_of(k) for k in self.shares]
        self.comm: Any = SimpleNamespace(rank=0, deadline=None, look=lambda: None)

    def run(
        self, call: CollectiveCall, gpus: tuple[int, ...], dtype: DType, xs: list[Any],
        outs: list[Any],
    ) -> list[Any]:  # fmt: skip
        """What the members of a group get. outs: arrays of the results' shapes, or None"""
        lie = [self._lies(g, x) for g, x in zip(gpus, xs, strict=True)]
        get = [None if x is None else self._lies(g, x) for g, x in zip(gpus, outs, strict=True)]
        ends = ExchangeEnds(
            dtype, xs[0].shape, gpus, frozenset(range(len(self.gpus))),
            tuple(b.address for b in lie), tuple(b and b.address for b in get),
        )  # fmt: skip
        self.exchanges.nccl.connect([tuple(sorted(set(gpus)))], self.comm)
        base = {g: self.exchanges.room(g, n) for g, n in planned(call, ends).room.items()}
        plan = planned(call, ends, base)
        self.exchanges.load(plan)
        self.exchanges.wait(self.exchanges.begin(plan))
        self.exchanges.finish(self.comm)
        found = []
        for g, block, out in zip(gpus, get, outs, strict=True):
            found.append(None if out is None else np.empty_like(out))
            if block is not None and out is not None and out.size:
                block.take(self.shares[g].stream, found[-1])
        return found

    def _lies(self, gpu: int, x: Any) -> DeviceBlock:
        block = DeviceBlock(self.gpus[gpu].cuda, max(x.nbytes, 1))
        block.put(self.shares[gpu].stream, x)
        return block
