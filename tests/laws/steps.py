"""The kinds of steps that a random model is made of, and how often each is drawn."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence

from laws.recipe import BATCH, Maker, Picks, StepMaker, Symbol, batches, features, symbols

from graphc.ir.builder import Builder, Value
from graphc.ir.graph import Variable
from graphc.ir.op import op_named
from graphc.ir.types import I32, Extent, TensorType

STEPS: dict[str, StepMaker] = {}
WEIGHTS: dict[str, float] = {}
SIZES = (2, 3, 4, 5, 6)


def step(weight: float) -> Callable[[StepMaker], StepMaker]:
    """Make a function a step kind, drawn in proportion to `weight`."""

    def register(make: StepMaker) -> StepMaker:
        STEPS[make.__name__] = make
        if weight:
            WEIGHTS[make.__name__] = weight
        return make

    return register


# -- where values come from -----------------------------------------------------------------------


@step(0)
def start(m: Maker, p: Picks) -> None:
    dims: list[Symbol] = [BATCH, *(p.of(SIZES) for _ in range(1 + p.number(2)))]
    m.add(m.input(dims, m.dtype))


@step(1)
def another_input(m: Maker, p: Picks) -> None:
    dims: list[Symbol] = [BATCH, *(p.of(SIZES) for _ in range(p.number(3)))]
    if p.chance(6):
        dims = [*dims[1:], BATCH]
    m.add(m.input(dims, m.dtype))


@step(1)
def embedding(m: Maker, p: Picks) -> None:
    rows = 3 + p.number(5)
    ids = ids_input(m, p, [BATCH, *([p.of(SIZES)] if p.chance(2) else [])], rows)
    dim, width = p.number(2), p.of(SIZES)
    table = m.param(p, *((rows, width) if dim == 0 else (width, rows)))
    m.add(m.f.gather(table, ids, dim=dim))


@step(1)
def lookup(m: Maker, p: Picks) -> None:
    """Rows of a table that is only looked up, once or twice: its gradient is rows."""
    rows, width = 3 + p.number(5), p.of(SIZES)
    name = f"t{len(m.params)}"
    shape = (rows, width) if not p.chance(4) else (rows,)
    v = Variable(name, TensorType(shape, m.dtype), sparse=p.of(("on", "on", "auto")))
    table = m.f.declare(v)
    m.params.append(table)
    for _ in range(1 + p.number(2)):
        dims: list[Symbol] = [*([p.of(SIZES)] if p.chance(2) else [])]
        dims = [BATCH, *dims] if not p.chance(6) else [p.of(SIZES), *dims]
        found = m.f.gather(table, ids_input(m, p, dims, rows), dim=0)
        if batches(found):
            m.add(found)
        else:
            m.terms.append(m.f.sum(m.f.sin(found)) * 0.1)


def ids_input(m: Maker, p: Picks, dims: Sequence[int | Extent], limit: int) -> Value:
    known = [i for i in m.ids if i.limit == limit and symbols(i.value) == tuple(dims)]
    return (p.of(known) if known else m.integers(dims, limit)).value


@step(0.7)
def positions(m: Maker, p: Picks) -> None:
    """Adds the index along a dim."""
    if (x := m.any(p)) is not None and x.rank:
        dim = p.number(x.rank)
        line = m.f.iota(shape=x.shape, dim=dim, dtype=I32, extents=x.type.extents)
        m.add(x + m.f.cast(line, dtype=m.dtype) * 0.1)


@step(0.7)
def dropout(m: Maker, p: Picks) -> None:
    """With the batch in front: else an entry's index, so its number, depends on the batch size."""
    if (x := m.any(p, lambda v: batches(v) == [0])) is not None:
        m.add(m.f.dropout(x, rate=0.4))


# -- entry by entry -------------------------------------------------------------------------------

_SMOOTH: tuple[Callable[[Builder, Value], Value], ...] = (
    lambda f, x: f.tanh(x),
    lambda f, x: f.sin(x),
    lambda f, x: f.exp(x * 0.3),
    lambda f, x: f.sqrt(x * x + 1.0),
    lambda f, x: f.log(x * x + 0.5),
    lambda f, x: f.erf(x),
    lambda f, x: f.sigmoid(x),
    lambda f, x: f.softplus(x),
    lambda f, x: f.square(x) * 0.5,
    lambda f, x: -x,
    lambda f, x: 1.0 / (x * x + 1.0),
    lambda f, x: (x * x + 0.3) ** 0.7,
    lambda f, x: f.gelu(x),
)

_KINKED: tuple[Callable[[Builder, Value], Value], ...] = (
    lambda f, x: f.relu(x),
    lambda f, x: f.abs(x),
    lambda f, x: f.maximum(x, 0.3),
    lambda f, x: f.minimum(x, -0.2),
    lambda f, x: f.leaky_relu(x),
    lambda f, x: f.where(f.gt(x, 0.1), x * x, f.sin(x)),
    lambda f, x: f.sign(x) * x,
)


@step(3)
def smooth(m: Maker, p: Picks) -> None:
    if (x := m.any(p)) is not None:
        m.add(p.of(_SMOOTH)(m.f, x))


@step(0.3)
def detached(m: Maker, p: Picks) -> None:
    """A product, differentiated by one factor only."""
    if (x := m.any(p)) is not None:
        m.add(m.f.sin(x) * m.f.stop_gradient(x))


@step(0.5)
def undone(m: Maker, p: Picks) -> None:
    """What the passes may simplify: double negation, subtraction from zero, permutations."""
    if (x := m.any(p)) is not None:
        match p.number(4):
            case 0:
                m.add(0.0 - x)
            case 1:
                m.add(m.f.neg(-x) * 1.0 + 0.0)
            case 2:
                m.add(m.f.transpose(m.f.transpose(x, p.order(x.rank)), p.order(x.rank)))
            case _ if batches(x) == [0]:
                m.add(m.f.dropout(x, rate=0.3) * 2.0 - m.f.dropout(x, rate=0.3))


@step(1.5)
def kinked(m: Maker, p: Picks) -> None:
    if (x := m.any(p)) is not None:
        m.add(p.of(_KINKED)(m.f, x))


_BINARY: tuple[Callable[[Builder, Value, Value], Value], ...] = (
    lambda f, x, y: x + y,
    lambda f, x, y: x - y,
    lambda f, x, y: x * y,
    lambda f, x, y: x / (y * y + 1.0),
    lambda f, x, y: f.maximum(x, y),
    lambda f, x, y: f.minimum(y, x),
    lambda f, x, y: f.where(f.lt(x, y), x * 0.5, y),
)


@step(2)
def binary(m: Maker, p: Picks) -> None:
    """Two values of the pool, the one repeated to the dims of the other."""
    x = m.any(p)
    if x is None:
        return
    y = m.any(p, lambda v: v.name != x.name and _inside(v, x) is not None)
    if y is not None:
        m.add(p.of(_BINARY)(m.f, x, repeated(m.f, y, x, _inside(y, x) or ())))


def _inside(v: Value, x: Value) -> tuple[int, ...] | None:
    """The dims of x that v's dims are, in order, or None."""
    found: list[int] = []
    rest = iter(range(x.rank))
    for s in symbols(v):
        dim = next((d for d in rest if symbols(x)[d] == s), None)
        if dim is None:
            return None
        found.append(dim)
    return tuple(found)


def repeated(f: Builder, y: Value, x: Value, at: Sequence[int]) -> Value:
    """`y`, whose dims are the dims `at` of x, repeated along the others."""
    if y.rank == x.rank:
        return y
    new = tuple(None if d in at else x.type.extent(d) for d in range(x.rank))
    op = op_named("broadcast")(x.shape, tuple(at), new if any(new) else ())  # type: ignore[call-arg]
    return f.add(op, (y,))


@step(2)
def biased(m: Maker, p: Picks) -> None:
    """A parameter over some of the features: a bias or a scale."""
    x = m.any(p, lambda v: bool(features(v)))
    if x is not None:
        at = p.some(features(x))
        w = m.param(p, *(x.shape[d] for d in at))
        m.add(p.of(_BINARY[:3])(m.f, x, repeated(m.f, w, x, at)))


# -- contractions ---------------------------------------------------------------------------------


@step(3)
def dense(m: Maker, p: Picks) -> None:
    """A feature dim contracted with a parameter."""
    x = m.any(p, lambda v: bool(features(v)))
    if x is None:
        return
    d, n = p.of(features(x)), p.of(SIZES)
    left = string.ascii_lowercase[: x.rank]
    new = left[:d] + "z" + left[d + 1 :] if p.chance(2) else left.replace(left[d], "") + "z"
    if p.chance(2):
        w, right = m.param(p, x.shape[d], n), left[d] + "z"
    else:
        w, right = m.param(p, n, x.shape[d]), "z" + left[d]
    m.add(m.f.einsum(x, w, spec=f"{left},{right}->{new}"))


@step(1)
def product(m: Maker, p: Picks) -> None:
    """Two values contracted example by example, over the features that they have in common."""
    x = m.any(p, lambda v: len(batches(v)) == 1)
    y = m.any(p, lambda v: len(batches(v)) == 1)
    if x is None or y is None or symbols(x)[batches(x)[0]] != symbols(y)[batches(y)[0]]:
        return
    left, right = _letters(p, x, y)
    both = [c for c in left if c in right and c != left[batches(x)[0]]]
    drop = p.some(both) if both else []
    out = [c for c in dict.fromkeys(left + right) if c not in drop]
    spec = f"{left},{right}->{''.join(out[i] for i in p.order(len(out)))}"
    if len(out) <= 4:
        m.add(m.f.einsum(x, y, spec=spec) * 0.5)


def _letters(p: Picks, x: Value, y: Value) -> tuple[str, str]:
    left = string.ascii_lowercase[: x.rank]
    free = {d: left[d] for d in features(x)}
    right = ""
    for d, s in enumerate(symbols(y)):
        same = [k for k in free if symbols(x)[k] == s]
        if isinstance(s, Extent):
            right += left[batches(x)[0]]
        elif same and not p.chance(3):
            right += free.pop(same[0])
        else:
            right += string.ascii_uppercase[d]
    return left, right


@step(0.7)
def over_batch(m: Maker, p: Picks) -> None:
    """Two values contracted over the batch: a covariance."""
    x = m.any(p, lambda v: v.rank == 2 and len(batches(v)) == 1)
    y = m.any(p, lambda v: v.rank == 2 and len(batches(v)) == 1)
    if x is None or y is None or symbols(x)[batches(x)[0]] != symbols(y)[batches(y)[0]]:
        return
    left = "bk" if batches(x) == [0] else "kb"
    right = "bn" if batches(y) == [0] else "nb"
    m.stats.append(m.f.einsum(x, y, spec=f"{left},{right}->{p.of(('kn', 'nk'))}"))
