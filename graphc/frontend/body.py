"""The body of a step: its statements, run once to build a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from graphc.errors import GraphcError, did_you_mean
from graphc.frontend import syntax as s
from graphc.frontend.evaluate import Evaluator
from graphc.frontend.names import Scope
from graphc.frontend.statements import (
    assign,
    chosen,
    loop_values,
    run_function,
    store,
    target_name,
)
from graphc.graph import Builder, Graph, Objective, Value, Variable
from graphc.op import op_named
from graphc.ops.init import initial_value
from graphc.ops.optim import as_optimizer
from graphc.types import Extent, Size, TensorType, dtype_named

MAX_UNROLLED = 200_000  # statements that static loops may come to


class StepBody:
    """Runs a step in one mode. sizes binds the named dims."""

    def __init__(
        self, step: s.Step, scope: Scope, sizes: Mapping[str, int], training: bool
    ) -> None:
        self.step, self.scope, self.sizes = step, scope, dict(sizes)
        self.f = Builder(step.name.id, training=training)
        self.first = Builder(f"{step.name.id}.init")
        self.evaluator = Evaluator(self.f, self._call_body)
        self.objectives: list[s.Minimize] = []
        self.losses: list[Value] = []
        self.ran = 0

    def run(self) -> tuple[Graph, Graph]:
        """The graph, and the graph of the variables' first values."""
        self._inputs()
        self._block(self.step.body, self.scope)
        if not self.losses and not self.f.outputs:
            message = "the step computes nothing: it has no `minimize` and no `report`"
            raise GraphcError("G0125", message, span=self.step.span)
        if self.f.training:
            for tree, loss in zip(self.objectives, self.losses, strict=True):
                self._objective(tree, loss)
        return self.f.build(), self.first.build()

    def _call_body(self, function: s.Function, scope: Scope) -> Any:
        return run_function(self.evaluator, function, scope)

    # -- inputs and types -----------------------------------------------------------------------

    def _inputs(self) -> None:
        leading = [d for i in self.step.inputs for d in i.type.dims[:1] if self._is_open(d)]
        for tree in self.step.inputs:
            for dim in tree.type.dims:
                if isinstance(dim, s.Name) and self._is_open(dim):
                    self._bind(dim, bool(leading) and dim == leading[0])
        for tree in self.step.inputs:
            op = op_named("input")(source_name=tree.name.id)  # type: ignore[call-arg]
            with self.f.at(tree.span):
                value = self.f.add(op, type=self._type(tree.type), name=tree.name.id)
            self.scope.values[tree.name.id] = value

    def _is_open(self, dim: Any) -> bool:
        """Whether a dim is a name that the data binds, not the program."""
        known = self.scope.outer.names() if self.scope.outer else ()
        return isinstance(dim, s.Name) and dim.id not in set(known)

    def _bind(self, dim: s.Name, is_batch: bool) -> None:
        if dim.id in self.scope.values:
            return
        if dim.id not in self.sizes:
            raise GraphcError(
                "G0128",
                f"nothing says how long dim '{dim.id}' is",
                span=dim.span,
                help=f"give the data a batch=..., or write `const {dim.id} = 10` at the top",
            )
        size = self.sizes[dim.id]
        self.scope.values[dim.id] = Size(size, Extent(dim.id)) if is_batch else size

    def _type(self, tree: s.TypeExpr) -> TensorType:
        """The type that is written: dims are integers known at compile time. Raises G0129."""
        shape = [self.evaluator.static_int(d, self.scope) for d in tree.dims]
        for dim, n in zip(tree.dims, shape, strict=True):
            if n < 0:
                raise GraphcError("G0129", f"a dim can't be {n}", span=dim.span)
        extents = tuple(n.extent if isinstance(n, Size) else None for n in shape)
        return TensorType(
            tuple(map(int, shape)), dtype_named(tree.dtype), extents if any(extents) else ()
        )

    # -- statements -----------------------------------------------------------------------------

    def _block(self, body: Iterable[s.Statement], scope: Scope) -> None:
        for statement in body:
            self.ran += 1
            if self.ran > MAX_UNROLLED:
                message = f"the loops of this step come to more than {MAX_UNROLLED} statements"
                raise GraphcError("G0123", message, span=statement.span)
            self._statement(statement, scope)

    def _statement(self, tree: s.Statement, scope: Scope) -> None:
        match tree:
            case s.Variable():
                self._variable(tree, scope)
            case s.Assign():
                assign(self.evaluator, tree, scope)
            case s.Update():
                self._update(tree, scope)
            case s.Report(name=name, value=value):
                self._output(name.id, self._tensor(value, scope), tree)
            case s.Minimize():
                self._minimize(tree, scope)
            case s.For():
                for values in loop_values(self.evaluator, tree, scope):
                    scope.values.update(values)
                    self._block(tree.body, scope)
            case s.If():
                self._block(chosen(self.evaluator, tree, scope), scope)
            case _:
                raise AssertionError(f"{type(tree).__name__} in a step")

    def _tensor(self, tree: Any, scope: Scope) -> Value:
        value = self.evaluator.evaluate(tree, scope)
        if isinstance(value, bool | int | float):
            with self.f.at(tree.span):
                return self.f.constant(value)
        if not isinstance(value, Value):
            raise GraphcError("G0122", "a tensor is needed here", span=tree.span)
        return value

    def _variable(self, tree: s.Variable, scope: Scope) -> None:
        name = target_name(self.evaluator, tree.target, scope)
        options = {a.name: self.evaluator.evaluate(a.value, scope) for a in tree.options}
        decay = options.pop("decay", True)
        if options or not isinstance(decay, bool):
            wrong = next(iter(options), "decay")
            hint = "a variable has the option decay=false"
            raise GraphcError(
                "G0121", f"'{wrong}' is no option of a variable", span=tree.span, help=hint
            )
        t = self._type(tree.type)
        if t.extents:
            raise GraphcError(
                "G0129", "a variable can't be as long as the batch", span=tree.type.span
            )
        if name in self.f.variables:
            raise GraphcError("G0113", f"variable '{name}' is declared twice", span=tree.span)
        variable = Variable(name, t, tree.kind, decay=decay, origin=tree.span)
        with self.f.at(tree.span):
            value = self.f.declare(variable)
        store(self.evaluator, tree.target, value, scope)
        self._first_value(tree, variable, self.evaluator.evaluate(tree.initial, scope))

    def _first_value(self, tree: s.Variable, variable: Variable, initial: Any) -> None:
        if isinstance(initial, Value):
            message = "a variable starts from an initialiser or a number, not from a tensor"
            raise GraphcError("G0129", message, span=tree.initial.span)
        with self.first.at(tree.initial.span):
            try:
                value = initial_value(self.first, initial, variable.name, variable.type)
            except GraphcError as error:
                raise error.at(tree.initial.span) from None
        self.first.outputs[variable.name] = value.name

    def _update(self, tree: s.Update, scope: Scope) -> None:
        name = target_name(self.evaluator, tree.target, scope)
        variable = self.f.variables.get(name)
        if variable is None or variable.kind != "state":
            hint = did_you_mean(
                name, [v.name for v in self.f.variables.values() if v.kind == "state"]
            )
            message = f"'{name}' is no state: only a state can be written with `<-`"
            raise GraphcError("G0129", message, span=tree.target.span, help=hint)
        value = self._tensor(tree.value, scope)
        with self.f.at(tree.span):
            value = self.f.to_dtype(value, variable.type.dtype)
            if value.shape != variable.type.shape:
                message = f"state '{name}' is {variable.type}, the new value is {value.type}"
                raise GraphcError("G0203", message, span=tree.value.span)
        if self.f.training:
            if name in self.f.updates:
                raise GraphcError("G0304", f"'{name}' is written twice", span=tree.span)
            self.f.updates[name] = value.name

    def _output(self, name: str, value: Value, tree: s.Statement) -> None:
        if name in self.f.outputs:
            raise GraphcError("G0113", f"'{name}' is reported twice", span=tree.span)
        self.f.outputs[name] = value.name

    # -- minimize -------------------------------------------------------------------------------

    def _minimize(self, tree: s.Minimize, scope: Scope) -> None:
        loss = self._tensor(tree.loss, scope)
        if loss.shape != () or loss.dtype.kind != "f":
            message = f"a loss must be a float scalar, not {loss.type}"
            hint = "take the mean or the sum over what is left"
            raise GraphcError("G0301", message, span=tree.loss.span, help=hint)
        name = "loss" if not self.losses else f"loss{len(self.losses) + 1}"
        self._output(name, loss, tree)
        self.losses.append(loss)
        self.objectives.append(tree)

    def _objective(self, tree: s.Minimize, loss: Value) -> None:
        steps = [self.evaluator.evaluate(x, self.scope) for x in tree.chain]
        with self.f.at(tree.span):
            try:
                optimizer = as_optimizer(steps)
            except GraphcError as error:
                raise error.at(tree.chain[-1].span) from None
        over = self._over(tree)
        self.f.objectives.append(Objective(loss.name, optimizer, over, origin=tree.span))

    def _over(self, tree: s.Minimize) -> tuple[str, ...]:
        params = [v.name for v in self.f.variables.values() if v.kind == "param"]
        if tree.over is None:
            return tuple(params)
        found: dict[str, None] = {}
        for item in tree.over:
            glob = (
                item.value
                if isinstance(item, s.Str)
                else target_name(self.evaluator, item, self.scope)
            )
            match = [p for p in params if fnmatchcase(p, glob) or p.startswith(f"{glob}.")]
            if not match:
                hint = did_you_mean(glob, params)
                raise GraphcError(
                    "G0302", f"'{glob}' matches no parameter", span=item.span, help=hint
                )
            found |= dict.fromkeys(match)
        return tuple(found)
