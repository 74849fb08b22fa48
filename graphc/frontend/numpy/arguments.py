"""What comes into a traced function: variables for the params and the state, inputs for the batch.

The batch keeps its integers and bools. A float array of it that is wider than the widest float of
the params is taken in the params' dtype (f32, if theirs is half as wide), so that NumPy's float64
does not turn an f32 model into one of f64; with `data_dtype` it is taken in that dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from graphc.frontend.numpy.declare import Param, declare
from graphc.frontend.numpy.leaves import leaf_type, listed
from graphc.frontend.numpy.parameters import parameters
from graphc.frontend.numpy.pytree import Structure, flatten
from graphc.frontend.numpy.session import TraceSession
from graphc.frontend.numpy.tracer import Tracer
from graphc.frontend.two_sizes import another_size
from graphc.ir.graph import Variable
from graphc.ir.op import op_named
from graphc.ir.types import DTYPES, F32, F64, DType, Extent, TensorType, dtype_of
from graphc.ops.initializers import initial_value
from graphc.support.dataclass import dataclass
from graphc.support.errors import GraphcError, Span


@dataclass(frozen=True)
class TraceRequest:
    """What to trace, and with which options.

    data_dtype: the widest float dtype in which the batch is taken; None: that of the params
    traced_at:  where the function makes constant arrays into which traced values are written
    """

    function: Callable[..., Any]
    params: Any
    state: Any
    batch: Any
    optimizer: Any
    training: bool
    whole: tuple[str, ...]
    batch_dim: str
    seed: int
    span: Span | None
    order: str
    reduction: str
    sparse: str
    data_dtype: DType | None = None
    traced_at: frozenset[Span] = frozenset()


# -- dtypes ---------------------------------------------------------------------------------------


def _types(tree: Any, kind: str) -> dict[str, TensorType]:
    """The types of a tree's leaves by name."""
    leaves = flatten(tree, kind)[0] if tree is not None else {}
    return {name: _type(name, x, kind) for name, x in leaves.items()}


def _type(name: str, given: Any, kind: str) -> TensorType:
    leaf = given if isinstance(given, Param) else Param(given)
    return TensorType(leaf.shape, leaf.dtype) if leaf.init else leaf_type(name, leaf.value, kind)


def _widest(types: Iterable[TensorType]) -> DType | None:
    floats = [t.dtype for t in types if t.dtype.kind == "f"]
    return max(floats, key=lambda dtype: dtype.bytes, default=None)


def params_float(request: TraceRequest) -> DType | None:
    """The widest float dtype of the params; None if they have no floats."""
    return _widest(_types(request.params, "params").values())


def _batch_types(request: TraceRequest) -> dict[str, TensorType]:
    """The types in which the batch is taken."""
    given, widest = _types(request.batch, "batch"), params_float(request)
    default = F32 if widest is not None and widest.bytes < F32.bytes else widest
    limit = request.data_dtype or default
    return {name: _narrowed(t, limit) for name, t in given.items()}


def _narrowed(t: TensorType, limit: DType | None) -> TensorType:
    wide = limit is not None and t.dtype.kind == "f" and t.dtype.bytes > limit.bytes
    return replace(t, dtype=limit) if wide else t  # type: ignore[arg-type]


def float_of(request: TraceRequest) -> DType:
    """The dtype of Python floats that meet no array: f64 if all float arrays of the step are
    f64."""
    trees = (request.params, "params"), (request.state, "state"), (request.batch, "batch")
    batch = _batch_types(request)
    known: set[DType] = set()
    for tree, kind in trees:
        leaves = flatten(tree, kind)[0] if tree is not None else {}
        types = batch if kind == "batch" else _types(tree, kind)
        known |= {types[n].dtype for n, x in leaves.items() if not _is_float(x)}
    floats = {dtype for dtype in known if dtype.kind == "f"}
    return F64 if floats == {F64} else F32


def has_f64(request: TraceRequest) -> bool:
    """Whether a param, a state or an entry of the batch is f64 in the step."""
    trees = _types(request.params, "params"), _types(request.state, "state"), _batch_types(request)
    return any(t.dtype == F64 for types in trees for t in types.values())


def _is_float(x: Any) -> bool:
    return type(x.value if isinstance(x, Param) and not x.init else x) is float


def dtype_notes(request: TraceRequest) -> list[GraphcError]:
    """What to say of dtypes: of a batch that is narrowed, and of a few f64 params or states."""
    given, used = _types(request.batch, "batch"), _batch_types(request)
    narrowed = [name for name, t in given.items() if t.dtype != used[name].dtype]
    notes = []
    if narrowed and request.data_dtype is None:
        to = used[narrowed[0]].dtype.numpy
        notes.append(
            GraphcError(
                "G0831",
                f"{_are(narrowed, 'batch')} {given[narrowed[0]].dtype.numpy}, the params are "
                f"{params_float(request)}: taken as {to}",
                help=f"make it {to} where it is made, or keep its dtype with "
                "graphc.compile(..., data_dtype='float64')",
            ).at(request.span)
        )
    return notes + _mixed(request)


def list_notes(request: TraceRequest) -> list[GraphcError]:
    """A note of lists of numbers in the batch, which are trees and not arrays."""
    batch = request.batch if isinstance(request.batch, dict) else {"batch": request.batch}
    lists = [
        str(name)
        for name, x in batch.items()
        if isinstance(x, list)
        and len(leaves := flatten(x, "x")[0]) > 1
        and all(isinstance(leaf, int | float) for leaf in leaves.values())
    ]
    if not lists:
        return []
    text = f"batch {listed(lists)}: each number of a list is an input of its own"
    help = "make it an array: np.array(x, np.float32)"
    return [GraphcError("G0837", text, span=request.span, help=help)]


def _mixed(request: TraceRequest) -> list[GraphcError]:
    """A note of f64 params and states beside f32 ones, which make all of the step f64."""
    floats, kinds = {}, {}
    for tree, kind in (request.params, "params"), (request.state, "state"):
        for name, x in (flatten(tree, kind)[0] if tree is not None else {}).items():
            if not _is_chosen(x) and _type(name, x, kind).dtype.kind == "f":
                floats[name], kinds[name] = _type(name, x, kind).dtype, kind
    wide = [name for name, dtype in floats.items() if dtype == F64]
    if not wide or all(floats[n] != F32 for n, kind in kinds.items() if kind == "params"):
        return []
    what = "it" if len(wide) == 1 else "them"
    return [
        GraphcError(
            "G0831",
            f"{_are(wide, kinds[wide[0]])} float64 beside float32: what meets {what} is computed "
            "in float64",
            help="make all params one dtype: np.zeros(n, np.float32), x.astype(np.float32)",
        ).at(request.span)
    ]


def _is_chosen(x: Any) -> bool:
    """Whether a leaf's dtype was written out: a `graphc.param` is f32 otherwise."""
    return isinstance(x, Param) and x.init is not None


def _are(names: list[str], kind: str) -> str:
    """`batch 'x' is`, `params 'a' and 3 others are`."""
    return f"{kind} {listed(names)} {'is' if len(names) == 1 else 'are'}"


def float_argument(dtype: Any, span: Span | None) -> DType:
    """The dtype that `data_dtype=` names, in NumPy's words or graphc's. Raises G0806."""
    try:
        known = DTYPES.get(dtype) or dtype_of(np.dtype(dtype))
    except (GraphcError, TypeError):
        known = None
    if known is None or known.kind != "f":
        text = f"data_dtype={dtype!r} is not a float dtype"
        raise GraphcError("G0806", text, span=span, help="such as 'float32' or 'float64'")
    return known


# -- variables and inputs -------------------------------------------------------------------------


def variables(session: TraceSession, tree: Any, kind: str) -> tuple[Any, Structure]:
    """The tree with a traced variable for every leaf."""
    leaves, form = parameters(tree, kind)
    read = {name: _variable(session, name, x, kind) for name, x in leaves.items()}
    return form.build(read, session.paths), form


def _variable(session: TraceSession, name: str, leaf: Param, kind: str) -> Tracer:
    f = session.builder
    t = _type(name, leaf, kind)
    trained = kind == "params" and leaf.trainable and t.dtype.kind == "f"
    if name in f.variables:
        raise GraphcError(
            "G0806",
            f"params and state both have a leaf '{name}'",
            help="rename one: variables are known by these names",
        )
    variable = Variable(
        name,
        t,
        "param" if trained else "state",
        decay=leaf.decay,
        origin=f.origin,
        order=leaf.order,
        sparse=leaf.sparse,
        aggregation="none" if trained else leaf.aggregation,
    )
    read = declare(session, variable)
    if leaf.init is not None:
        first = initial_value(session.first, leaf.init, name, t)
        session.first.outputs[name] = first.name
    else:
        session.initial[name] = np.asarray(leaf.value, t.dtype.numpy)
    return read


def inputs(
    session: TraceSession, request: TraceRequest, dynamic: bool, grown: bool
) -> tuple[Any, Structure]:
    """The batch with a traced input for every leaf.

    dynamic: whether its length may differ at run time; grown: another size than the example's
    """
    f = session.builder
    form = flatten(request.batch, "batch")[1]
    types = _batch_types(request)
    cut = _cut(request, types)
    _check_batch({n: types[n].shape[0] for n in cut})
    session.size = types[cut[0]].shape[0] if cut else 0
    made = {}
    for name, t in types.items():
        if name in cut and dynamic:
            extents = (Extent(request.batch_dim), *(None,) * (t.rank - 1))
            first = another_size(t.shape[0]) if grown else t.shape[0]
            t = TensorType((first, *t.shape[1:]), t.dtype, extents)
        op = op_named("input")(source_name=name)  # type: ignore[call-arg]
        made[name] = Tracer(session, f.add(op, type=t, name=name))
    return form.build(made), form


def _cut(request: TraceRequest, types: Mapping[str, TensorType]) -> list[str]:
    """The entries of the batch that have a batch dim."""
    return [n for n, t in types.items() if t.rank and not _matches(n, request.whole)]


def batch_size(request: TraceRequest) -> int | None:
    """The number of examples in the example batch; None if no entry has a batch dim."""
    types = _types(request.batch, "batch")
    return next((types[n].shape[0] for n in _cut(request, types)), None)


def _matches(name: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, g) or name.startswith(f"{g}.") for g in globs)


def _check_batch(lengths: Mapping[str, int]) -> None:
    if len(set(lengths.values())) > 1:
        shown = listed([f"{name}: {n}" for name, n in lengths.items()], quote="")
        raise GraphcError(
            "G0806",
            f"the arrays of the batch differ in their first dim ({shown})",
            help="name the ones without a batch dim in whole=[...]",
        )
