"""Which programs a run on a plan's own data runs: those for whole batches, or for shorter ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphc.lowering.program.program import Program
from graphc.plan.plan import SYNC, WORKER, Plan
from graphc.runtime.data.dataset import examples_of
from graphc.runtime.data.proportion import replicas
from graphc.runtime.data.sharding import Sharding


def programs_used(plan: Plan) -> list[str] | None:
    """The programs, in the order of their first steps; None where the data can't be counted.

    The run is as long as the source says.
    """
    training = WORKER if plan.asynchronous else "train"
    names: list[str] = []
    for name, program in (("train", training), ("test", "evaluate")):
        spec = plan.data.get(name)
        parts = examples_of(spec["kind"], spec["path"]) if spec else ()
        if not parts or spec is None:
            if spec or name == "train":
                return None
            continue
        sharding = Sharding(spec["shard"], replicas(plan)) if name == "train" else Sharding()
        sizes = _sizes(sharding.examples(parts), spec["batch"], _steps(plan, name))
        names += dict.fromkeys(_program_for(size, program, plan.programs) for size in sizes)
        if name == "train" and plan.meta.get("every"):
            names.append(SYNC)
    return names


def _steps(plan: Plan, name: str) -> int | None:
    """The steps of the whole run on a dataset; None where it is gone through to the end."""
    duration = plan.meta.get("duration") or {}
    counted = name == "train" and duration.get("unit") == "steps"
    return int(duration["count"]) if counted else None


def _sizes(examples: int, batch: int, steps: int | None) -> Iterator[int]:
    """The numbers of examples of the batches, each once."""
    whole, rest = divmod(examples, batch)
    if whole:
        yield batch
    if rest and (steps is None or steps > whole):
        yield rest


def _program_for(size: int, name: str, programs: Mapping[str, Program]) -> str:
    """The program that runs batches of so many examples."""
    counted = (t for t in programs[name].inputs.values() if t.extents and t.extents[0])
    short = f"{name}.short"
    return short if short in programs and any(t.shape[0] != size for t in counted) else name
