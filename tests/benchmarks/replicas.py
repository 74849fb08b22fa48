"""Two replicas of a training step: graphc's strategies, and what other frameworks have like them.

Each replica takes half of the batch; all of them together have two cores. A system is in this
process, but for PyTorch, which has a process for each replica: this one, and one that follows it.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
from systems import (
    Step,
    TFState,
    graphc_step,
    jax_state,
    jax_update,
    jax_words,
    tf_words,
    torch_optimizer,
    torch_weights,
    torch_words,
)
from turns import CHECKED
from workloads import WORKLOADS, Workload

COUNT = 2  # replicas


@dataclass(frozen=True)
class Replicas:
    """A step on the global batch; `announce` is told how many steps come next."""

    step: Step
    announce: Callable[[int], None] = lambda count: None


@dataclass(frozen=True)
class Spread:
    """module: what has to be installed. like: graphc's strategy of the same kind; note: what the
    system cannot do."""

    module: str
    make: Callable[[str], Replicas]
    like: str = ""
    note: str = ""
    environment: dict[str, str] = field(default_factory=dict)


def parts_of(batch: Any) -> list[dict[str, Any]]:
    """What each replica takes of the batch."""
    halves = {name: np.split(x, COUNT) for name, x in batch.items()}
    return [{name: x[k] for name, x in halves.items()} for k in range(COUNT)]


def free_port() -> int:
    with closing(socket.socket()) as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


# -- graphc -------------------------------------------------------------------------------------------


def graphc_replicas(strategy: str, workload: str) -> Replicas:
    return Replicas(graphc_step(WORKLOADS[workload](), COUNT, strategy))


# -- JAX ----------------------------------------------------------------------------------------------


def jax_replicas(workload: str) -> Replicas:
    """Two devices of the CPU; the gradient of the mean over them is summed by shard_map itself."""
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    w, f = WORKLOADS[workload](), jax_words()
    mesh = Mesh(np.array(jax.devices()), ("data",))
    whole, split = PartitionSpec(), PartitionSpec("data")

    @partial(jax.jit, donate_argnums=(0, 1))
    @partial(jax.shard_map, mesh=mesh, in_specs=(whole, whole, split), out_specs=whole)
    def step(p: Any, s: Any, batch: Any) -> Any:
        def loss(p: Any) -> Any:
            return jax.lax.pmean(w.loss(f, p, batch), "data")

        y, g = jax.value_and_grad(loss)(p)
        return *jax_update(w, p, s, g), y

    state = jax.device_put(list(jax_state(w)), NamedSharding(mesh, whole))

    def run(batch: Any) -> float:
        *state[:], loss = step(*state, batch)
        return float(loss)

    return Replicas(run)


# -- PyTorch ------------------------------------------------------------------------------------------


def torch_replica(kind: str, workload: str, rank: int, port: int) -> Step:
    """kind: ddp or fsdp2. The loss of all replicas is found for the steps that are compared only."""
    import torch
    from torch import distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=COUNT, timeout=timedelta(hours=1)
    )
    w = WORKLOADS[workload]()
    model = _torch_model(w, kind)
    o, steps = torch_optimizer(w, model.parameters()), [0]

    def step(batch: Any) -> float:
        o.zero_grad(set_to_none=True)
        y = model({n: torch.from_numpy(x) for n, x in parts_of(batch)[rank].items()})
        y.backward()
        o.step()
        steps[0] += 1
        if steps[0] <= CHECKED:
            y = y.detach() / COUNT
            dist.all_reduce(y)
        return float(y.detach())

    return step


def _torch_model(w: Workload, kind: str) -> Any:
    import torch
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    f = torch_words(bool(w.rows))

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, weight in torch_weights(w).items():
                self.register_parameter(f"_{name}", weight)

        def forward(self, batch: Any) -> Any:
            return w.loss(f, {name: getattr(self, f"_{name}") for name in w.weights}, batch)

    if kind == "ddp":
        return DistributedDataParallel(Model(), gradient_as_bucket_view=True)
    return fully_shard(Model(), mesh=torch.distributed.init_device_mesh("cpu", (COUNT,)))


def torch_replicas(kind: str, workload: str) -> Replicas:
    port = free_port()
    command = [sys.executable, __file__, kind, workload, str(port)]
    follower = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)

    def announce(count: int) -> None:
        assert follower.stdin
        follower.stdin.write(f"{count}\n")
        follower.stdin.flush()

    return Replicas(torch_replica(kind, workload, 0, port), announce)


def follow(kind: str, workload: str, port: str) -> None:
    """The other replica: the steps that are announced."""
    step = torch_replica(kind, workload, 1, int(port))
    batches = cycle(WORKLOADS[workload]().batches)
    for line in sys.stdin:
        for _ in range(int(line)):
            step(next(batches))


# -- TensorFlow ---------------------------------------------------------------------------------------


def tf_replicas(kind: str, workload: str) -> Replicas:
    """kind: mirrored or central. Each replica is a logical CPU."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(COUNT)
    tf.config.threading.set_inter_op_parallelism_threads(COUNT)
    cpu, one = tf.config.list_physical_devices("CPU")[0], tf.config.LogicalDeviceConfiguration
    tf.config.set_logical_device_configuration(cpu, [one() for _ in range(COUNT)])
    experimental, devices = tf.distribute.experimental, [f"CPU:{k}" for k in range(COUNT)]
    made = (
        tf.distribute.MirroredStrategy
        if kind == "mirrored"
        else experimental.CentralStorageStrategy
    )
    strategy, w, f = made(devices), WORKLOADS[workload](), tf_words()
    with strategy.scope():
        s = TFState(w)

    def merge(strategy: Any, *gradients: Any) -> None:
        pairs, extended = list(zip(gradients, s.p.values(), strict=True)), strategy.extended
        sums = extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, pairs)
        for (name, p), g in zip(s.p.items(), sums, strict=True):
            extended.update(p, s.update, args=(g, s.m[name], s.v[name], s.powers))
        extended.update(s.powers, lambda x: x.assign(x * [0.9, 0.999]))

    def replica(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = w.loss(f, s.p, batch) / COUNT
        gradients = map(tf.convert_to_tensor, tape.gradient(loss, list(s.p.values())))
        tf.distribute.get_replica_context().merge_call(merge, args=tuple(gradients))
        return loss

    @tf.function
    def step(parts: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(replica, args=(parts,)), axis=None)

    def run(batch: Any) -> float:
        parts = parts_of(batch)
        return float(step(strategy.experimental_distribute_values_from_function(
            lambda c: {n: tf.constant(x) for n, x in parts[c.replica_id_in_sync_group].items()}
        )))  # fmt: skip

    return Replicas(run)


def tf_servers(workload: str) -> Replicas:
    """Two workers and a server of a cluster in this process; every half is an update of its own."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(COUNT)
    # a thread for each job of the cluster besides, or they wait for each other for ever
    tf.config.threading.set_inter_op_parallelism_threads(2 * COUNT + 1)
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=2 * COUNT + 1)
    hosts = {"worker": [f"localhost:{free_port()}" for _ in range(COUNT)]}
    cluster = tf.train.ClusterSpec(hosts | {"ps": [f"localhost:{free_port()}"]})
    kept = [
        tf.distribute.Server(cluster, job_name=job, task_index=k, protocol="grpc", config=config)
        for job, k in [*(("worker", k) for k in range(COUNT)), ("ps", 0)]
    ]
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
    strategy, w, f = (
        tf.distribute.ParameterServerStrategy(resolver),
        WORKLOADS[workload](),
        tf_words(),
    )
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        s = TFState(w)

    @tf.function
    def push(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = w.loss(f, s.p, batch)
        for name, g in zip(s.p, tape.gradient(loss, list(s.p.values())), strict=True):
            s.update(s.p[name], g, s.m[name], s.v[name], s.powers)
        s.powers.assign(s.powers * [0.9, 0.999])
        return loss

    def run(batch: Any) -> float:
        assert kept
        found = [
            coordinator.schedule(push, args=({n: tf.constant(x) for n, x in part.items()},))
            for part in parts_of(batch)
        ]
        coordinator.join()
        return float(sum(x.fetch() for x in found) / COUNT)

    return Replicas(run)


# -- all of them --------------------------------------------------------------------------------------

STRATEGIES = (
    "mirrored(2)", "zero(2, stage=1)", "zero(2, stage=2)", "zero(2, stage=3)",
    "central_storage(2)", "parameter_server(2, 1)",
)  # fmt: skip
TWO_DEVICES = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={COUNT}"}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
SPREADS = {f"graphc {s}": Spread("graphc.api", partial(graphc_replicas, s)) for s in STRATEGIES} | {
    "torch DDP": Spread(
        "torch", partial(torch_replicas, "ddp"), "mirrored(2)", environment=ONE_THREAD
    ),
    "torch FSDP2": Spread(
        "torch", partial(torch_replicas, "fsdp2"), "zero(2, stage=3)", environment=ONE_THREAD
    ),
    "jax shard_map": Spread("jax", jax_replicas, "mirrored(2)", environment=TWO_DEVICES),
    "tf Mirrored": Spread("tensorflow", partial(tf_replicas, "mirrored"), "mirrored(2)"),
    "tf CentralStorage": Spread("tensorflow", partial(tf_replicas, "central"), "central_storage(2)"),
    "tf ParameterServer": Spread(
        "tensorflow", tf_servers, "parameter_server(2, 1)",
        "updates are asynchronous only: each worker's half of the batch is one by itself",
    ),
}  # fmt: skip

if __name__ == "__main__":
    follow(*sys.argv[1:])
