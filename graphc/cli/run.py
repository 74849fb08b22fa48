"""The command `run`: from a .gc file or a plan to trained variables."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graphc.cli import completion
from graphc.cli.budgets import budget_options, check_chosen_budgets
from graphc.cli.checkpoint_options import checkpoint_options, load_option, resume_option
from graphc.cli.data_files import load_data
from graphc.cli.drivers import chosen_driver, driver_options
from graphc.cli.file_arguments import OutputPath
from graphc.cli.hypers import hyper_option, set_hypers
from graphc.cli.imports import import_option
from graphc.cli.job import CommandJob, in_job, is_silent, transport_option
from graphc.cli.launch import Launchable, restarting_launch_options
from graphc.cli.logs import log_options

if TYPE_CHECKING:
    from graphc.plan.plan import Plan
    from graphc.runtime.data.dataset import Dataset
    from graphc.runtime.trainer import Trainer
    from graphc.runtime.training.history import FitHistory


def _no_empty(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    """The text. Refuses an empty one, as of a shell's variable that is not set."""
    if text is not None and not text.strip():
        raise click.BadParameter("it is empty: leave the option out for the file's own strategy")
    return text


strategy_option = click.option(
    "--strategy",
    callback=_no_empty,
    shell_complete=completion.strategies,
    help="Strategy, such as 'mirrored(4) * accumulate(2)'. Default: the file's own.",
)
order_option = click.option(
    "--order",
    help="Order in which gradients are summed: add_n, tree or accumulate; or one order for each "
    "place: devices=tree,turns=add_n,fanin=accumulate.",
)
sparse_option = click.option(
    "--sparse", type=click.Choice(["auto", "on", "off"]),
    help="Keep gradients of table lookups as rows. auto: if a step looks up fewer rows than the "
    "table has.",
)  # fmt: skip
bucket_option = click.option(
    "--bucket-bytes", "bucket", type=click.IntRange(0), default=0,
    help="Bucket small all-reduces, reduce-scatters and all-gathers up to this many bytes. "
    "Default: no buckets; 1 MiB over links slower than memory.",
)  # fmt: skip
peak_option = click.option("--peak", help="Memory limit for each device, such as 2GiB.")
backend_option = click.option(
    "--backend", default="numpy", show_default=True, shell_complete=completion.backends,
    help="Backend to run on; `graphc backends` lists them.",
)  # fmt: skip
seed_option = click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), metavar="INTEGER",
    help="Seed of initial values, dropout and other random functions without a seed of their own. "
    "Shuffling the data has its own seed. Default: 0.",
)  # fmt: skip
check_option = click.option(
    "--check-replicas", is_flag=True,
    help="Fail if replicas disagree on an only_first_replica variable.",
)  # fmt: skip


trace_option = click.option(
    "--trace", "trace_file", type=OutputPath(),
    help="Write a trace of some steps, which Perfetto and chrome://tracing show: what each thread "
    "of each device does and waits for.",
)  # fmt: skip
trace_steps_option = click.option(
    "--trace-steps", type=click.IntRange(1), default=10, show_default=True,
    help="Steps in the trace, from the second one on.",
)  # fmt: skip


@click.command("run", cls=Launchable)
@click.argument("file", type=click.Path(path_type=Path))
@strategy_option
@order_option
@sparse_option
@peak_option
@budget_options
@bucket_option
@seed_option
@check_option
@click.option(
    "--max-bytes",
    help="Memory limit for all devices together, such as 8GiB. Default: the machine's memory.",
)
@backend_option
@transport_option
@hyper_option
@click.option("--epochs", type=click.IntRange(1), help="Epochs to train. Default: the file's own.")
@click.option("--steps", type=click.IntRange(1), help="Steps to train, instead of epochs.")
@click.option(
    "--save", type=OutputPath(),
    help="Write a checkpoint (.safetensors) at the end of the training.",
)  # fmt: skip
@resume_option
@checkpoint_options
@load_option
@click.option(
    "--record", type=OutputPath(),
    help="Record an asynchronous training: which push was applied when.",
)  # fmt: skip
@click.option(
    "--replay", type=click.Path(path_type=Path),
    help="Repeat a training that --record wrote, bit for bit.",
)  # fmt: skip
@import_option
@driver_options
@log_options
@trace_option
@trace_steps_option
@click.option(
    "--debug-nans", is_flag=True,
    help="Stop at the first step that produces a NaN or an infinity, and name the operation.",
)  # fmt: skip
@restarting_launch_options
@click.option("--json", "as_json", is_flag=True, help="Print the report as one line of JSON.")
@click.option("--quiet", is_flag=True, help="Show no progress bar.")
@in_job
def run_command(
    running: CommandJob,
    file: Path, strategy: str | None, order: str | None, sparse: str | None, peak: str | None,
    bucket: int, seed: int | None, check_replicas: bool, max_bytes: str | None, backend: str,
    hyper: tuple[str, ...], epochs: int | None, steps: int | None,
    save: Path | None, resume: Path | None, load: Path | None,
    load_names: Path | None, checkpoint: Path | None, every: int | None, keep: int | None,
    record: Path | None, replay: Path | None,
    log: Path | None, tensorboard: Path | None, evaluate_every: int | None,
    trace_file: Path | None, trace_steps: int, debug_nans: bool, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Train FILE (.gc or .plan), and evaluate it on its test data.

    Ctrl-C or SIGTERM ends the training after the running step; --save and --checkpoint still write
    where it ended. --resume continues at the same example, on any number of devices; on the same
    ones, the result is bit-identical to that of an uninterrupted training. --epochs and --steps
    count the resumed part too. The seed is the checkpoint's unless --seed is given.

    The result of an asynchronous strategy, such as 'parameter_server(4, 2, staleness=3)', depends
    on timing. --record saves which push was applied when; --replay repeats it bit for bit. --driver
    ray runs its servers and workers as processes of their own, which may be killed at any time.
    """
    from graphc.cli.checkpoint_options import (
        checkpointed,
        checkpoints,
        resumed_training,
        start_from,
    )
    from graphc.cli.file_arguments import check_learns, check_not_read, check_outputs, saved
    from graphc.cli.logs import evaluation, log_callbacks, test_metrics, warn_of_cost
    from graphc.cli.traces import write_trace

    if epochs and steps:
        raise click.UsageError("give --epochs or --steps, not both")
    if resume and load:
        raise click.UsageError("give --resume or --load, not both")
    limit = bytes_of(max_bytes, "--max-bytes")
    where, logs = checkpoints(checkpoint, every, keep), log_callbacks(log, tensorboard)
    if running.speaks:
        check_outputs(save, record, trace_file)
    with shown_warnings():
        resumed = resumed_training(resume, checkpoint, running.processes)
    if seed is None and resumed is not None and file.suffix != ".plan":
        seed = resumed.seed
    bucket = running.bucket(bucket, file)
    options = strategy, peak, order, bucket, check_replicas, sparse, seed, backend
    plan = running.plan(lambda: plan_of(file, *options))
    check_learns(plan)
    check_not_read(plan, save, record, trace_file, log)
    train, test = load_data(plan, "train"), load_data(plan, "test")
    how: dict[str, Any] = {"max_bytes": limit, "debug_nans": debug_nans or None}
    how |= {"driver": chosen_driver(), "transport": running.transport}
    with _trainer(plan, backend, trace_steps if trace_file else 0, how) as trainer:
        with shown_warnings():
            if resumed is not None and resume is not None:
                trainer.take_up(resumed, resume)
                resumed = None  # its values are no longer needed
            start_from(trainer, load, load_names)
        set_hypers(trainer, hyper)
        start = time.perf_counter()
        with shown_warnings(), checkpointed(trainer, where) as saver:
            files: dict[str, Any] = {"record": record, "replay": replay, "checkpoint": saver}
            seen = {"callbacks": logs, "progress": not (quiet or as_json)}
            evaluated = evaluation(trainer, test, evaluate_every, any(seen.values()))
            with saved(trainer, save):
                history = _train(trainer, train, epochs, steps, files | seen | evaluated)
            if saver is not None:
                saver.last()
            seconds = time.perf_counter() - start - history.validation_seconds
            warn_of_cost(history, seconds)
            write_trace(trainer, trace_file)
            metrics = test_metrics(trainer, test, history)
            report = _report(trainer, history.last_step, metrics, seconds)
            running.echo(in_json(report) if as_json else _in_words(report))


def _trainer(plan: Plan, backend: str, traced: int, how: dict[str, Any]) -> Trainer:
    """The trainer; one that records its first steps if there is to be a trace of them."""
    from graphc.runtime.trainer import Trainer

    if not traced:
        return Trainer(plan, backend, **how)
    from graphc.runtime.profiling.traced_run import TracedTrainer

    return TracedTrainer(plan, backend, traced=traced, **how)


def _report(
    trainer: Trainer, last: dict[str, Any], metrics: dict[str, Any], seconds: float
) -> dict[str, Any]:
    from graphc.runtime.checkpoints.kernel_history import changes
    from graphc.runtime.results import loss_of, numbers

    plan, backend, taken = trainer.plan, trainer.backend, trainer.engine.footprints
    promised, history = (plan.meta.get("determinism") or {}).get("bits", ""), trainer.kernel_history
    breaks = changes(history) if plan.meta.get("grid") else ()
    return {
        "steps": trainer.steps,
        "loss": loss_of(last),
        "metrics": numbers(metrics),
        "params_sha256": trainer.params_sha256(),
        "seed": plan.meta.get("seed", 0),
        "strategy": plan.strategy,
        "devices": plan.devices,
        "processes": trainer.processes.count,
        "hosts": trainer.processes.hosts,
        "backend": backend.name,
        "executor": backend.executor,
        "peak_bytes": taken[0].peak,
        "sent_bytes": plan.sent_bytes,
        "sent_by_link": plan.sent_by_link,
        "memory": [
            {
                "devices": f.devices,
                "peak_bytes": f.peak,
                "variable_bytes": f.variables,
                "constant_bytes": f.constants,
                "arena_bytes": f.arena,
                "scratch_bytes": f.scratch,
            }
            for f in taken
        ],
        "compile_seconds": plan.meta.get("compile_seconds", 0.0),
        "run_seconds": seconds,
        "determinism": f"{promised} to step {history[1].start}" if breaks else promised,
        "breaks": list(breaks),
        "kernels": trainer.kernel_history[-1].kernels,
    } | _besides(trainer)


def _besides(trainer: Trainer) -> dict[str, Any]:
    """Entries that only some runs have: a note, and of asynchronous runs counts of pushes."""
    note = {"note": trainer.backend.note} if trainer.backend.note else {}
    seen = trainer.observed
    if seen is None:
        return note
    return note | {
        "pulled_bytes": trainer.plan.pulled_bytes,
        "staleness": {str(k): n for k, n in sorted(seen.staleness.items())},
        "workers": dict(sorted(seen.workers.items())),
    }


def plan_of(
    file: Path, strategy: str | None, peak: str | None, order: str | None = None, bucket: int = 0,
    check_replicas: bool = False, sparse: str | None = None, seed: int | None = None,
    backend: str = "numpy", anew: bool = False,
) -> Plan:  # fmt: skip
    """Read a .plan file, or compile a .gc file to a plan. Warnings are printed.

    peak: the memory limit for each device; what a plan needs depends on the backend
    anew: compile even what is in the cache of plans
    """
    if file.suffix == ".plan":
        from graphc.plan.plan import load

        if strategy or peak or order or bucket or sparse or seed is not None:
            raise click.UsageError(
                "a plan is already compiled: --strategy, --order, --sparse, --peak, "
                "--bucket-bytes and --seed are options of `graphc compile`"
            )
        plan = load(file)
        check_chosen_budgets(plan)
        return plan
    from graphc.compiler import driver, plan_cache
    from graphc.frontend.language.load import load_module
    from graphc.runtime.backends import plugins
    from graphc.runtime.machine.memory_limits import check_peak
    from graphc.strategies import parse_strategy

    limit = bytes_of(peak, "--peak")
    with shown_warnings():
        module = load_module(file, seed=seed or 0).ordered(order or "").with_sparse(sparse or "")
        chosen = parse_strategy(strategy) if strategy else None
        compiled = driver.compile_module if anew else plan_cache.compiled
        plan = compiled(
            module, chosen or module.strategy, bucket=bucket, check_replicas=check_replicas
        )
    if limit is not None:
        check_peak(plan, plugins.backend(backend), limit)
    check_chosen_budgets(plan, module, chosen, bucket)
    return plan


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Print the compiler's warnings in the same form as its errors."""
    from graphc.support.errors import GraphcWarning

    def show(message: Warning | str, *where: Any, **more: Any) -> None:
        if isinstance(message, GraphcWarning) and not is_silent():
            click.echo(str(message), err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", GraphcWarning)
        warnings.showwarning = show
        yield


def bytes_of(text: str | None, option: str) -> int | None:
    """The number of bytes in a text such as `2GiB`, `500MB` or `1024`; None for None."""
    from graphc.support.units import size_of

    if text is None:
        return None
    size = size_of(text)
    if size is None:
        raise click.BadParameter(f"'{text}' is not a size; write 2GiB or 500MB", param_hint=option)
    return size


# -- training --------------------------------------------------------------------------------------


def _train(
    trainer: Trainer, train_data: tuple[Dataset, dict[str, Any]] | None, epochs: int | None,
    steps: int | None, how: dict[str, Any],
) -> FitHistory:  # fmt: skip
    from graphc.runtime.data.plan_data import replicas
    from graphc.runtime.data.sharding import Sharding
    from graphc.support.errors import GraphcError

    if train_data is None:
        help = 'write data train = npz("file.npz", batch=256) into the program'
        raise GraphcError("G0607", "the program names no data to train on", help=help)
    data, spec = train_data
    duration = trainer.plan.meta.get("duration") or {"count": 1, "unit": "epochs"}
    if epochs is None and steps is None:
        epochs = duration["count"] if duration["unit"] == "epochs" else None
        steps = duration["count"] if duration["unit"] == "steps" else None
    sharding = Sharding(spec["shard"], replicas(trainer.plan))
    total = steps if steps is not None else (epochs or 1) * data.steps(spec["batch"], sharding)
    left = max(total - trainer.steps, 0)
    return trainer.fit(
        data, spec["batch"], steps=left, shuffle_seed=spec["shuffle_seed"], shard=spec["shard"],
        **how,
    )  # fmt: skip


# -- what is printed -------------------------------------------------------------------------------


def in_json(report: dict[str, Any]) -> str:
    """One line of JSON. A number that is not finite becomes null, as JSON can't express it."""

    def plain(value: Any) -> Any:
        match value:
            case dict():
                return {k: plain(x) for k, x in value.items()}
            case float() if not math.isfinite(value):
                return None
            case _:
                return value

    return json.dumps(plain(report), allow_nan=False)


def _in_words(report: dict[str, Any]) -> str:
    n, loss = report["devices"], report["loss"]
    lines = [
        f"{report['steps']} steps in {report['run_seconds']:.1f} s on {n} device{'s' * (n > 1)} "
        f"({report['strategy']}, {report['backend']})"
    ]
    if loss is not None:
        lines.append(f"last loss {loss:.4f}")
    if report.get("staleness"):
        ages = ", ".join(f"{k}: {n}" for k, n in report["staleness"].items())
        lines.append(f"staleness {ages} (versions: updates)")
        lines.append(", ".join(f"{name} {n}" for name, n in report["workers"].items()))
    if report["metrics"]:
        lines.append("test: " + ", ".join(f"{k} {v:.4f}" for k, v in report["metrics"].items()))
    if report["breaks"]:
        lines.append(f"{report['determinism']}: {'; '.join(report['breaks'])}")
    if "note" in report:
        lines.append(f"note: {report['note']}")
    return "\n".join([*lines, f"parameters {report['params_sha256'][:16]}"])
