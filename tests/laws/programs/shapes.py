"""Statements that move entries: reshapes, views, joins, parts, windows of what is there."""

from __future__ import annotations

from laws.programs.entries import companion
from laws.programs.grow import Grower, Skip, Var, piece


@piece(3)
def reshape(g: Grower) -> None:
    """Dims merged, cut in factors, of length 1, and -1 for one of them."""
    x = g.any("fib")
    dims = [x.length(d) for d in range(x.rank)]
    for _ in range(g.of((1, 1, 2, 3))):
        _change(g, dims)
    if dims and g.chance(0.3):
        dims[g.rng.randrange(len(dims))] = "-1"
    shape = f"({', '.join(dims)}{',' if len(dims) == 1 else ''})"
    text = g.of(("{}.reshape({})", "np.reshape({}, {})"))
    g.add(text.format(x.name, shape), x, exact=True)


def _change(g: Grower, dims: list[str]) -> None:
    at = g.rng.randrange(len(dims) + 1)
    match g.rng.randrange(4):
        case 0:
            dims.insert(at, "1")
        case 1 if at + 1 < len(dims):
            dims[at : at + 2] = [_product(dims[at], dims[at + 1])]
        case 2 if "1" in dims:
            dims.remove("1")
        case 3 if at < len(dims) and dims[at].isdecimal() and int(dims[at]) > 1:
            n = int(dims[at])
            k = g.of([k for k in range(2, n + 1) if n % k == 0])
            dims[at : at + 1] = [str(k), str(n // k)]
        case _:
            dims.insert(at, "1")


def _product(a: str, b: str) -> str:
    return str(int(a) * int(b)) if a.isdecimal() and b.isdecimal() else f"{a} * {b}"


@piece(2)
def turned(g: Grower) -> None:
    x = g.any("fib", lambda v: v.rank > 1)
    order = g.rng.sample(range(x.rank), x.rank)
    text = g.of((
        "{x}.T", "np.transpose({x}, {order})", "{x}.transpose({order})", "np.swapaxes({x}, {a}, {b})",
        "np.moveaxis({x}, {a}, {b})", "{x}.mT", "np.rollaxis({x}, {a})", "np.matrix_transpose({x})",
        "{x}.T.reshape({x}.shape)", "np.transpose({x}, {order})[::-1]",
    ))  # fmt: skip
    g.add(text.format(x=x.name, order=order, a=g.axis(x), b=g.axis(x)), x, exact=True)


@piece(2)
def ones(g: Grower) -> None:
    """Dims of length 1 that come and go."""
    x = g.any("fib")
    texts = [
        "{x}[..., None]", "{x}[None]", "np.expand_dims({x}, 0)", "np.expand_dims({x}, -1)",
        "np.squeeze({x})", "{x}.squeeze()", "np.atleast_1d({x})", "np.atleast_2d({x})",
        "np.atleast_3d({x})", "{x}.ravel()", "{x}.flatten()", "np.ravel({x})", "{x}.reshape(-1)",
        "{x}.reshape(-1, 1)", "{x}.reshape(1, -1)", "np.expand_dims({x}, (0, -1))",
    ]  # fmt: skip
    if 1 in g.sizes:  # the dim of a batch stays when it is 1 by chance
        texts = [t for t in texts if "squeeze(" not in t]
    if x.rank > 1:
        texts += ["{x}[:, None]", "{x}[:, 0]", "{x}[:, -1:]", "{x}.squeeze(-1)", "{x}[..., 0]"]
    g.add(g.of(texts).format(x=x.name), x, exact=True)


@piece(4)
def sliced(g: Grower) -> None:
    x = g.any("ffib", lambda v: v.rank > 0)
    keys = [_key(g, x, d) for d in range(x.rank)]
    if g.chance(0.15):
        keys[g.rng.randrange(len(keys)) :] = ["..."] if g.chance(0.5) else ["...", keys[-1]]
    if g.chance(0.15):
        keys.insert(g.rng.randrange(len(keys) + 1), "None")
    while len(keys) > 1 and keys[-1] == ":" and g.chance(0.5):
        keys.pop()
    g.add(f"{x.name}[{', '.join(keys)}]", x, exact=True)


def _key(g: Grower, x: Var, d: int) -> str:
    if x.is_batch(d) and g.chance(0.85):
        return ":"
    return g.of((
        ":", ":", "::-1", "::2", "1:", ":-1", ":1", "-1:", "0", "-1", "::-2", "1::2", "-2:", ":2",
        "1:2", "-1:0:-1", "2:0:-1", "::3",
    ))  # fmt: skip


@piece(1)
def flipped(g: Grower) -> None:
    x = g.any("fib", lambda v: v.rank > 0)
    d = g.of([d for d in range(x.rank) if g.chance(0.1) or not x.is_batch(d)])
    text = g.of((
        "np.flip({x}, {d})", "np.roll({x}, 1, {d})", "np.roll({x}, -2, axis={d})", "np.flip({x}, ({d},))",
        "np.roll({x}, 5, {d})",
    ))  # fmt: skip
    g.add(text.format(x=x.name, d=d), x, exact=True)


@piece(1.5)
def repeated(g: Grower) -> None:
    x = g.any("fib")
    texts = [
        "np.tile({x}, 2)", "np.tile({x}, (2, 1))", "np.broadcast_to({x}, (3, *{x}.shape))",
        "np.stack([{x}] * 3)", "np.broadcast_to({x}, (1, *{x}.shape))",
    ]  # fmt: skip
    if x.rank:
        d = g.axis(x)
        texts += [
            f"np.repeat({{x}}, 2, axis={d})",
            f"np.repeat({{x}}, 1, axis={d})",
            "np.tile({x}, 1)",
        ]
        if not x.is_batch(d):
            counts = [g.rng.randrange(3) for _ in range(x.shape[d])]
            texts.append(f"np.repeat({{x}}, {counts}, axis={d})")
    g.add(g.of(texts).format(x=x.name), x, exact=True)


@piece(1)
def padded(g: Grower) -> None:
    x = g.any("fi", lambda v: v.rank > 0)
    low, high = g.rng.randrange(3), g.rng.randrange(3)
    widths = [(0, 0) if x.is_batch(d) or g.chance(0.3) else (low, high) for d in range(x.rank)]
    mode = g.of(
        (
            "",
            "",
            ", constant_values=2",
            ', mode="edge"',
            ', mode="reflect"',
            ', mode="wrap"',
            ', mode="symmetric"',
        )
    )
    g.add(f"np.pad({x.name}, {widths}{mode})", x, exact=True)


@piece(1)
def parts(g: Grower) -> None:
    x = g.any("fib", lambda v: v.rank > 0)
    d = g.of([d for d in range(x.rank) if not x.is_batch(d)])
    n, at = x.shape[d], g.rng.randrange(max(1, x.shape[d]))
    k = g.of([k for k in (1, 2, 3, 4) if n and n % k == 0])
    text = g.of((
        f"np.split({x.name}, {k}, {d})[{g.rng.randrange(k)}]", f"np.split({x.name}, [{at}], {d})[-1]",
        f"np.array_split({x.name}, 2, {d})[{g.of((0, 1))}]", f"np.unstack({x.name}, axis={d})[{at}]",
        f"np.delete({x.name}, {at}, {d})", f"np.diff({x.name}, axis={d})",
        f"np.diff({x.name}, axis={d}, prepend=0)", f"np.split({x.name}, {n}, {d})[{at}]",
    ))  # fmt: skip
    g.add(text, x, exact=True)


@piece(0.8)
def matrices(g: Grower) -> None:
    x = g.any("f", lambda v: v.rank > 1 and not any(map(v.is_batch, (v.rank - 2, v.rank - 1))))
    text = g.of((
        "np.tril({x})", "np.triu({x}, 1)", "np.tril({x}, -1)", "np.triu({x}, -1)", "np.rot90({x}, 1, (-2, -1))",
        "np.diagonal({x}, 0, -2, -1)", "np.trace({x}, 0, -2, -1)", "np.diagonal({x}, 1, -2, -1)",
        "np.linalg.diagonal({x})", "np.fliplr({x})", "np.linalg.trace({x})",
    ))  # fmt: skip
    g.add(text.format(x=x.name), x, exact=True)


# -- joins ----------------------------------------------------------------------------------------


def _fellow(g: Grower, x: Var) -> str:
    """Something of the kind of x: x, a part of it, something made of it."""
    return g.of((
        "{x}", "{x}", "{x} * 2", "{x}[..., ::-1]", "{x} - 0.5", "-{x}", "{x}[..., :1]", "{x} * {x}",
        "{x}[..., 1:]", "np.zeros_like({x})", "{x} + {x}",
    )).format(x=x.name)  # fmt: skip


@piece(4)
def joined(g: Grower) -> None:
    """What is joined may be one value two and three times, and a join itself."""
    x = g.any("fffi", lambda v: v.rank > 0)
    used = [x]
    texts = []
    for _ in range(g.of((1, 2, 2, 2, 3, 4))):
        if g.chance(0.25):
            used.append(companion(g, x))
            texts.append(used[-1].name)
        else:
            texts.append(_fellow(g, x))
    many, d = ", ".join(texts), g.axis(x)
    if x.is_batch(d) and g.chance(0.8):
        d = x.rank - 1
    text = g.of((
        f"np.concatenate([{many}], axis={d})", f"np.concatenate([{many}], axis={x.rank - 1})",
        f"np.stack([{many}], axis={d})", f"np.stack([{many}], axis=-1)", f"np.hstack([{many}])",
        f"np.vstack([{many}])", f"np.dstack([{many}])", f"np.column_stack([{many}])",
        f"np.concatenate([{many}], axis=-1)", f"np.block([{many}])", f"np.append({x.name}, {texts[0]}, -1)",
        f"np.concatenate([{many}], axis=-1)[..., ::-1]", f"np.stack([{many}], axis=0)[0]",
        f"np.concatenate([{many}], axis=-1)[..., 1:]", f"np.stack([{many}])[-1]",
        f"np.block([[{many}], [{many}]])", f"np.concatenate([{many}], axis=-1).reshape(-1)",
    ))  # fmt: skip
    g.add(text, *used, exact=True)


@piece(1)
def broadcast(g: Grower) -> None:
    x = g.any("fi")
    y = companion(g, x)
    text = g.of((
        "np.broadcast_to({y}, {x}.shape) + {x}", "np.broadcast_arrays({x}, {y})[1] - {x}", "{y} + np.zeros_like({x})",
        "np.broadcast_arrays({y}, {x})[0] * {x}", "np.meshgrid({x}, {y})[0]", "np.meshgrid({x}, {y})[1]",
    ))  # fmt: skip
    if x.kind != "f":
        raise Skip
    g.add(text.format(x=x.name, y=y.name), x, y, exact=True)
