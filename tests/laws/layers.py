"""More kinds of steps: reductions, shapes, layers, and what needs the whole batch."""

from __future__ import annotations

from laws.recipe import BATCH, LONGEST, Maker, Picks, batches, features, symbols
from laws.steps import SIZES, ids_input, repeated, step

from graphc.ir.builder import Builder, Value
from graphc.ir.op import op_named
from graphc.ir.types import Extent

# -- reductions and shapes ------------------------------------------------------------------------


@step(1.5)
def reduced(m: Maker, p: Picks) -> None:
    x = m.any(p, lambda v: bool(features(v)))
    if x is not None:
        how = p.of(("sum", "mean", "max", "min", "logsumexp"))
        m.add(getattr(m.f, how)(x, axis=tuple(p.some(features(x)))))


@step(0.8)
def batch_statistic(m: Maker, p: Picks) -> None:
    if (x := m.any(p, lambda v: bool(batches(v)))) is not None:
        how = p.of(("sum", "mean", "max", "min"))
        over = {*batches(x), *(p.some(features(x)) if features(x) and p.chance(2) else ())}
        m.stats.append(getattr(m.f, how)(x, axis=tuple(sorted(over))))


@step(0.7)
def new_dim(m: Maker, p: Picks) -> None:
    x = m.any(p)
    if x is not None:
        at, n = p.number(x.rank + 1), p.of(SIZES[:3])
        shape = (*x.shape[:at], n, *x.shape[at:])
        dims = tuple(d for d in range(x.rank + 1) if d != at)
        m.add(m.f.add(op_named("broadcast")(shape, dims, ()), (x,)))  # type: ignore[call-arg]


@step(1.2)
def merged(m: Maker, p: Picks) -> None:
    """Two dims made one; the batch stays the major factor, but for once in a while."""
    x = m.any(p, lambda v: v.rank > 1)
    if x is None:
        return
    pairs = [d for d in range(x.rank - 1) if x.type.extent(d + 1) is None]
    if p.chance(12) or not pairs:
        pairs = list(range(x.rank - 1))
    d = p.of(pairs)
    m.add(m.f.reshape(x, (*x.shape[:d], x.shape[d] * x.shape[d + 1], *x.shape[d + 2 :])))


@step(1)
def cut(m: Maker, p: Picks) -> None:
    """A dim made two."""
    x = m.any(p, lambda v: any(_factor(s) for s in symbols(v)))
    if x is not None:
        d = p.of([d for d, s in enumerate(symbols(x)) if _factor(s)])
        minor = _factor(symbols(x)[d])
        m.add(m.f.reshape(x, (*x.shape[:d], x.shape[d] // minor, minor, *x.shape[d + 1 :])))


def _factor(s: int | Extent) -> int:
    n = s.unit if isinstance(s, Extent) else s
    return next((k for k in (2, 3, 5) if n % k == 0 and (n > k or isinstance(s, Extent))), 0)


@step(1)
def permuted(m: Maker, p: Picks) -> None:
    if (x := m.any(p, lambda v: v.rank > 1)) is not None:
        m.add(m.f.transpose(x, p.order(x.rank)))


@step(1.5)
def along_feature(m: Maker, p: Picks) -> None:
    """Slices, padding, reversal, running sums, concatenation along a feature dim."""
    x = m.any(p, lambda v: bool(features(v)))
    if x is not None:
        m.add(_along(m.f, p, x, p.of(features(x))))


@step(0.1)
def along_batch(m: Maker, p: Picks) -> None:
    """The same along the batch, which then must be whole."""
    x = m.any(p, lambda v: bool(batches(v)))
    if x is not None:
        d = p.of(batches(x))
        m.add(m.f.flip(x, axis=d) if p.chance(2) else m.f.cumsum(x, axis=d) * 0.2)


def _along(f: Builder, p: Picks, x: Value, d: int) -> Value:
    n = x.shape[d]
    match p.number(6):
        case 0:
            return f.flip(x, axis=d)
        case 1:
            return f.cumsum(x, axis=d) * 0.5
        case 2 if n > 1:
            return f.slice(x, dim=d, start=p.number(2), stop=n, step=1 + p.number(2))
        case 3:
            return f.add(op_named("pad")(d, p.number(2), 1, p.number(2)), (x,))  # type: ignore[call-arg]
        case 4:
            return f.roll(x, 1, axis=d)
        case _:
            return f.concat(x, x * 0.5, axis=d)


# -- layers ---------------------------------------------------------------------------------------


@step(1.5)
def normalized(m: Maker, p: Picks) -> None:
    x = m.any(p, lambda v: bool(features(v)))
    if x is not None:
        how, d = p.of(("softmax", "log_softmax", "layer_norm", "rms_norm")), p.of(features(x))
        m.add(getattr(m.f, how)(x, axis=d))


@step(0.5)
def attention(m: Maker, p: Picks) -> None:
    x = m.any(p, lambda v: v.rank == 3 and batches(v) == [0])
    if x is not None:
        k = x.shape[2]
        q, v = m.f.matmul(x, m.param(p, k, k)), m.f.matmul(x, m.param(p, k, k))
        m.add(m.f.attention(q, x, v, causal=p.chance(2)))


@step(0.4)
def convolution(m: Maker, p: Picks) -> None:
    x = m.any(p, lambda v: v.rank == 3 and batches(v) == [0] and v.shape[1] > 2)
    if x is not None:
        w = m.param(p, 3, x.shape[2], p.of(SIZES[:3]))
        m.add(m.f.conv1d(x, w, padding=p.of(("same", "valid")), stride=1 + p.number(2)))


@step(0.8)
def looked_up(m: Maker, p: Picks) -> None:
    """An entry of every example, by an integer input."""
    x = m.any(p, lambda v: v.rank > 1 and batches(v) == [0])
    if x is None or symbols(x)[0] != BATCH or x.rank - 1 not in features(x):
        return
    ids = ids_input(m, p, [BATCH], x.shape[-1])
    if x.rank == 2 and not p.chance(3):
        hot = m.f.one_hot(ids, x.shape[-1], dtype=m.dtype)
        m.add(m.f.sum(x * hot, axis=1), -m.f.cross_entropy(x, ids))
    else:
        m.add(m.f.take_along_axis(x, repeated(m.f, ids, x, (0,)), axis=-1))


# -- what can't be done microbatch by microbatch --------------------------------------------------


@step(0.15)
def barrier(m: Maker, p: Picks) -> None:
    """A statistic of the batch, used for its examples again."""
    x = m.any(p, lambda v: batches(v) == [0])
    if x is None:
        return
    match p.number(3):
        case 0:
            m.add(x - repeated(m.f, m.f.mean(x, axis=0), x, range(1, x.rank)))
        case 1 if x.rank == 2:
            m.add(m.f.batch_norm(x))
        case _:
            m.terms.append(m.f.mean(x) * m.f.mean(x))


@step(0.1)
def pairwise(m: Maker, p: Picks) -> None:
    """Every example against every other."""
    x = m.any(p, lambda v: v.rank == 2 and symbols(v)[0] == BATCH and len(batches(v)) == 1)
    if x is not None and m.batch * m.batch <= LONGEST:
        m.stats.append(m.f.sum(m.f.tanh(m.f.einsum(x, x, spec="ak,bk->ab"))))
