"""A run on Ray whose processes are killed meanwhile: python killed_run.py SEED KILLS PUSHES FOLDER

Prints a line of JSON: what was killed and applied, and whether a replay in threads gives the same
bits. In a process of its own, as Ray leaves threads and settings behind.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from graphc_ray import RayPlugin

from graphc.compiler.driver import compile_module
from graphc.frontend.language.load import module_of_source
from graphc.plan.plan import Plan
from graphc.runtime.asynchronous.drivers import Driver, Roles
from graphc.runtime.asynchronous.recordings import load
from graphc.runtime.data.dataset import Dataset
from graphc.runtime.trainer import Trainer
from graphc.strategies import parse_strategy

if TYPE_CHECKING:  # it imports Ray, which then reads its settings
    from graphc_ray.driver import RayDriver

SOURCE = """
step model(x: f32[batch, 6], y: f32[batch, 2]) {
    param w1: f32[6, 8] = he_normal()
    param b1: f32[8]    = zeros()
    param w2: f32[8, 2] = he_normal()
    state seen: f32[]   = zeros()
    seen <- seen + sum(0.0 * x + 1.0)
    minimize mse(tanh(x @ w1 + b1) @ w2, y) with clip_by_global_norm(1.0) | adam(0.01)
}
data train = npz("none.npz", batch=8)
"""
BATCH, BOUND = 8, 2


def plan() -> Plan:
    strategy = parse_strategy(f"parameter_server(2, 2, staleness={BOUND})")
    return compile_module(module_of_source(SOURCE), strategy)


def data(batches: int) -> Dataset:
    r = np.random.default_rng(0)
    x = r.normal(size=(BATCH * batches, 6)).astype(np.float32)
    return Dataset({"x": x, "y": np.sin(x[:, :2])})


class Watched(RayPlugin):
    """The driver, with its current run at hand."""

    run: RayDriver

    def start(self, roles: Roles) -> Driver:
        self.run = super().start(roles)  # type: ignore[assignment]
        return self.run

    def pid(self, role: str) -> int:
        actor = self.run.actors.get(role)
        return actor.where.pid if actor else 0


class Killer:
    """Kills processes of roles at drawn pushes, as soon as there is one that lives."""

    def __init__(self, plugin: Watched, seed: int, kills: int, pushes: int) -> None:
        self.plugin, self.random = plugin, random.Random(seed)
        self.at = sorted(self.random.sample(range(1, pushes), kills))
        self.killed: list[str] = []

    def __call__(self, number: int, results: dict[str, Any]) -> None:
        while self.at and number >= self.at[0]:
            roles = [r for r in self.plugin.run.actors if self.plugin.pid(r)]
            kind = ("server", "worker")[len(self.killed) % 2]
            chosen = [r for r in roles if r.startswith(kind)]
            if not chosen:
                return
            role = self.random.choice(chosen)
            os.kill(self.plugin.pid(role), signal.SIGKILL)
            self.killed.append(role)
            del self.at[0]


def listening() -> list[str]:
    """The addresses on which this process and its descendants listen, as /proc has them."""
    mine = {os.getpid()}
    parents = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit():
                stat = (entry / "stat").read_text()
                parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
        except OSError:
            continue
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    sockets = set()
    for pid in mine:
        try:
            for handle in (Path("/proc") / str(pid) / "fd").iterdir():
                sockets.add(os.readlink(handle))
        except OSError:
            continue
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                found.append(fields[1].partition(":")[0])
    return sorted(set(found))


def main(seed: int, kills: int, pushes: int, folder: Path) -> dict[str, Any]:
    made, file, plugin = plan(), folder / "run.sched", Watched()
    killer, examples = Killer(plugin, seed, kills, pushes), data(pushes)
    with Trainer(made, driver=plugin) as trainer:
        print(json.dumps({"pid": os.getpid()}), flush=True)
        trainer.fit(examples, BATCH, shuffle_seed=1, record=file, on_step=killer)
        found, addresses = trainer.variables(), listening()
    with Trainer(made) as again:
        again.fit(examples, BATCH, shuffle_seed=1, replay=file)
        replayed = again.variables()
    entries = load(file).entries
    return {
        "killed": killer.killed,
        "steps": trainer.steps,
        "batches": sorted(e.batch for e in entries) == list(range(pushes)),
        "examples": float(found["seen"]) / 6,
        "staleness": max(e.staleness for e in entries),
        "workers": len(Counter(e.worker for e in entries)),
        "same": all(found[k].tobytes() == replayed[k].tobytes() for k in found),
        "addresses": addresses,
    }


if __name__ == "__main__":
    seed, kills, pushes = map(int, sys.argv[1:4])
    print(json.dumps(main(seed, kills, pushes, Path(sys.argv[4]))), flush=True)
