"""From the syntax tree of a .gc file to a Module: its graphs, data, duration and strategies.

The step's body is run twice, once with `training` true and once false; what it declares goes into
the train graph, the evaluate graph, and the graph of first values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphc.errors import GraphcError
from graphc.frontend import syntax as s
from graphc.frontend.body import StepBody
from graphc.frontend.evaluate import Evaluator
from graphc.frontend.names import Closure, Namespace, Scope
from graphc.frontend.parse import parse_file, parse_source
from graphc.graph import Builder, Graph
from graphc.module import DataSpec, Duration, Module
from graphc.strategy import Strategy, strategy_of

MAX_IMPORTS = 100


@dataclass
class File:
    """What the files of a program declare, imports resolved."""

    scope: Scope
    steps: list[s.Step] = field(default_factory=list)
    data: dict[str, s.Data] = field(default_factory=dict)
    train: s.Train | None = None
    strategies: dict[str, Strategy] = field(default_factory=dict)


def load_module(path: str | Path, sizes: Mapping[str, int] | None = None) -> Module:
    """The module of a .gc file. sizes binds dims that the program leaves open.

    Raises GraphcError for whatever is wrong with the program.
    """
    return _module(parse_file(path), Path(path), dict(sizes or {}))


def module_of_source(
    text: str, file: str = "<source>", sizes: Mapping[str, int] | None = None
) -> Module:
    """The module of a program given as text; imports and data are relative to `file`."""
    return _module(parse_source(text, file), Path(file), dict(sizes or {}))


def _module(tree: s.Module, path: Path, sizes: dict[str, int]) -> Module:
    try:
        return _lowered(tree, path, sizes)
    except RecursionError:  # each is bounded, their product is not
        message = "calls of functions, blocks and expressions nest too deep together"
        raise GraphcError("G0104", message, span=tree.span) from None


def _lowered(tree: s.Module, path: Path, sizes: dict[str, int]) -> Module:
    loader = Loader()
    file = loader.read(tree, path)
    if len(file.steps) != 1:
        raise GraphcError(
            "G0125",
            f"a program has one step, this one has {len(file.steps)}",
            span=file.steps[1].span if file.steps else tree.span,
            help="write `step NAME(inputs) { ... }`",
        )
    step = file.steps[0]
    data = {name: _data_spec(d, path, file.scope) for name, d in file.data.items()}
    train, init = _graphs(step, file, _sizes(data, "train", sizes), True)
    evaluate, _ = _graphs(step, file, _sizes(data, "test", sizes), False)
    _check_over(data)
    return Module(step.name.id, train, evaluate, init, data, _duration(file), file.strategies)


def _sizes(data: Mapping[str, DataSpec], name: str, sizes: Mapping[str, int]) -> dict[str, int]:
    """Sizes of named dims: what the caller says, else the batch of the data that is read."""
    spec = data.get(name) or data.get("train")
    return ({"batch": spec.batch} if spec else {}) | dict(sizes)


def _graphs(
    step: s.Step, file: File, sizes: Mapping[str, int], training: bool
) -> tuple[Graph, Graph]:
    """The step's graph in one mode, and the graph of its variables' first values."""
    body = StepBody(step, Scope(file.scope), sizes, training)
    return body.run()


def _check_over(data: Mapping[str, DataSpec]) -> None:
    for name, spec in data.items():
        if spec.batch < 1:
            message = f"data '{name}': a batch has at least one example"
            raise GraphcError("G0126", message, span=spec.origin)


class Loader:
    """Reads a file and what it imports, each file once."""

    def __init__(self) -> None:
        self.open: list[Path] = []
        self.done: dict[Path, File] = {}

    def read(self, tree: s.Module, path: Path) -> File:
        """What a file declares. Constants are evaluated, functions kept as trees."""
        file = File(Scope())
        self.open.append(path.resolve())
        for item in tree.items:
            self._take(item, file, path)
        self.open.pop()
        return file

    def _take(self, item: s.Statement, file: File, path: Path) -> None:
        match item:
            case s.Import():
                self._import(item, file, path)
            case s.Const(name=name, value=value):
                file.scope.values[name.id] = static_value(value, file.scope)
            case s.Function(name=name):
                file.scope.values[name.id] = Closure(item, file.scope)
            case s.Step():
                file.steps.append(item)
            case s.Data(name=name):
                file.data[name.id] = item
            case s.Train():
                file.train = item
            case s.Strategy(name=name, value=value):
                file.strategies[name.id] = strategy_of(value, file.strategies)
            case _:
                raise AssertionError(f"{type(item).__name__} at the top of a file")

    def _import(self, item: s.Import, file: File, path: Path) -> None:
        target = (path.parent / item.path.value).resolve()
        if target in self.open:
            raise GraphcError("G0127", f"{item.path.value} imports itself", span=item.span)
        if len(self.open) + len(self.done) > MAX_IMPORTS:
            raise GraphcError("G0127", f"more than {MAX_IMPORTS} files", span=item.span)
        if target not in self.done:
            try:
                tree = parse_file(path.parent / item.path.value)
            except GraphcError as error:
                if error.code == "G0106":
                    error.span = item.path.span
                raise
            self.done[target] = self.read(tree, path.parent / item.path.value)
        members = self.done[target].scope.values
        if item.alias is not None:
            file.scope.values[item.alias.id] = Namespace(item.path.value, members)
        else:
            file.scope.values.update(members)


def static_value(tree: Any, scope: Scope) -> Any:
    """The value of an expression that has no tensors in it. Raises G0123 where it has."""
    from graphc.graph import Value

    f = Builder()
    value = Evaluator(f, _no_body).evaluate(tree, scope)
    if isinstance(value, Value):
        message = "this must be known at compile time, but it is a tensor"
        raise GraphcError("G0123", message, span=tree.span)
    return value


def _no_body(function: s.Function, scope: Scope) -> Any:
    from graphc.frontend.statements import run_function

    return run_function(Evaluator(Builder(), _no_body), function, scope)


# -- data, duration ------------------------------------------------------------------------------


def _data_spec(tree: s.Data, path: Path, scope: Scope) -> DataSpec:
    """`npz("x.npz", batch=256, shuffle(seed=0))` as data. Raises G0126."""
    source = tree.source
    options: dict[str, Any] = {}
    where, seed = None, None
    for argument in source.arguments:
        match argument:
            case s.Argument(name=None, value=s.Call(function=s.Name(id="shuffle"))):
                seed = _shuffle_seed(argument.value, scope)
            case s.Argument(name=None, value=value):
                where = static_value(value, scope)
            case s.Argument(name=name, value=value):
                options[str(name)] = static_value(value, scope)
    batch = options.pop("batch", None)
    kind = source.function.id if isinstance(source.function, s.Name) else ""
    good = isinstance(where, str) and isinstance(batch, int) and not isinstance(batch, bool)
    if not good or options:
        raise GraphcError(
            "G0126",
            f"data '{tree.name.id}' can't be read like this",
            span=source.span,
            help='write data train = npz("file.npz", batch=256, shuffle(seed=0))',
        )
    assert isinstance(where, str) and isinstance(batch, int)
    return DataSpec(
        tree.name.id, kind, str((path.parent / where).resolve()), batch, seed, {}, source.span
    )


def _shuffle_seed(tree: Any, scope: Scope) -> int:
    seed: Any = 0
    for argument in tree.arguments:
        seed = static_value(argument.value, scope)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise GraphcError("G0126", "shuffle takes a seed, an integer", span=tree.span)
    return seed


def _duration(file: File) -> Duration | None:
    if file.train is None:
        return None
    count = static_value(file.train.count, file.scope)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        message = f"train for a positive number of {file.train.unit}, not {count!r}"
        raise GraphcError("G0126", message, span=file.train.count.span)
    return Duration(count, file.train.unit)
