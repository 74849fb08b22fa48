"""Statements that look up: tables, computed indices, 1-D tables, bins, labels."""

from __future__ import annotations

from laws.programs.grow import Grower, Skip, Var, piece


def _ids(g: Grower, limit: int) -> tuple[str, list[Var]]:
    """Indices below `limit`: an input, something computed, a constant."""
    if limit < 1:
        raise Skip
    some = [v for v in g.pool if v.kind == "i" or v.kind == "u"]
    if some and g.chance(0.75):
        v = g.of(some)
        inside = all(x.min(initial=0) >= 0 and x.max(initial=0) < limit for x in v.values)
        if inside and g.chance(0.8):
            return v.name, [v]
        return f"({v.name} % {limit})", [v]
    x = g.float(1)
    match g.rng.randrange(4):
        case 0:
            axis = g.axis(x)
            g.ordered(x, str(axis))
            return f"(np.argmax({x.name}, axis={axis}) % {limit})", [x]
        case 1:
            axis = g.axis(x)
            g.ordered(x, str(axis))
            return f"(np.argsort({x.name}, axis={axis}, kind='stable') % {limit})", [x]
        case 2:
            g.apart(x, 0)
            return f"(({x.name} > 0).astype(np.int32) % {limit})", [x]
        case _:
            constant = [g.rng.randrange(-limit, limit) for _ in range(g.of((1, 2, 3)))]
            return f"np.array({constant})", []


@piece(3)
def looked_up(g: Grower) -> None:
    """Rows of a table, or entries of a vector, parameters or not."""
    if g.chance(0.6):
        dims = [g.of((1, 2, 3, 5, 7)), *(g.size() for _ in range(g.of((0, 0, 1, 1, 2))))]
        t = g.param(*dims)
    else:
        t = g.any("ffi", lambda v: v.rank > 0 and not v.is_batch(0))
    ids, used = _ids(g, t.shape[0])
    text = g.of((
        "{t}[{i}]", "{t}[{i}]", "np.take({t}, {i}, axis=0)", "nn.embedding({t}, {i})", "{t}[{i}] * {t}[{i}]",
        "{t}[{i}][..., None]", "{t}[{i}].T", "np.concatenate([{t}[{i}], {t}[{i}]])", "{t}[{i} - {n}]",
        "np.take({t}, {i} + 1, axis=0, mode='wrap')", "np.take({t}, {i} * 2, axis=0, mode='clip')",
        "{t}[{i}][::-1]",
    ))  # fmt: skip
    if "nn." in text and "-" in ids:
        raise Skip  # it takes no index from the end
    g.add(text.format(t=t.name, i=ids, n=t.shape[0]), t, *used, exact=True)


@piece(1.5)
def picked(g: Grower) -> None:
    """Along another dim than the first, or two dims at once."""
    t = g.any("ffi", lambda v: v.rank > 1)
    d = g.of([d for d in range(t.rank) if not t.is_batch(d)])
    ids, used = _ids(g, t.shape[d])
    texts = [
        f"np.take({t.name}, {ids}, axis={d})", f"{t.name}[{':, ' * d}{ids}]",
        f"np.take_along_axis({t.name}, {ids}, axis={d})", f"{t.name}[..., {ids}]",
        f"np.take_along_axis({t.name}, {ids}[..., None], axis={d})",
        f"np.take_along_axis({t.name}, np.expand_dims({ids}, {d}), axis={d})",
    ]  # fmt: skip
    if t.is_batch(0) and d == 1:
        texts += [f"{t.name}[np.arange({t.name}.shape[0]), {ids}]"] * 2
    if d == 1 and not t.is_batch(0):
        first, more = _ids(g, t.shape[0])
        texts += [f"{t.name}[{first}, {ids}]"] * 2
        used = [*used, *more]
    g.add(g.of(texts), t, *used, exact=True)


@piece(1.5)
def binned(g: Grower) -> None:
    """Bins that are constant, or sorted on the way, and tables looked up by them."""
    x = g.any("f")
    edges = sorted(g.rng.sample([-1.1, -0.6, -0.1, 0.15, 0.4, 0.9, 1.6], g.of((2, 3, 5))))
    for edge in edges:
        g.apart(x, edge)
    n = len(edges)
    t = g.param(n + 1)
    text = g.of((
        f"np.searchsorted({edges}, {x.name})", f"np.digitize({x.name}, {edges})",
        f"np.interp({x.name}, {edges}, {t.name}[1:])", f"{t.name}[np.searchsorted({edges}, {x.name})]",
        f"np.interp({x.name}, {edges}, {edges[::-1]})", f"{t.name}[np.digitize({x.name}, {edges})]",
        f"np.searchsorted({edges}, {x.name}, side='right') * 0.5", f"np.take({t.name}, np.digitize({x.name}, {edges}))",
    ))  # fmt: skip
    g.add(text, x, t, narrow="0.5" in text)


@piece(0.7)
def searched(g: Grower) -> None:
    """A sorted row, searched by other values."""
    a, x = g.any("f", lambda v: v.rank == 1 and not v.is_batch(0)), g.float()
    for i in range(a.shape[0]):
        g.apart(x, Var("", (a.values[0][i], a.values[1][i]), a.trained, a.exact))
    g.ordered(a, "0")
    g.add(f"np.searchsorted(np.sort({a.name}), {x.name})", a, x, exact=True)


@piece(1)
def labeled(g: Grower) -> None:
    logits = g.float(2)
    n = logits.shape[-1]
    ids, used = _ids(g, n)
    text = g.of((
        f"nn.cross_entropy({logits.name}, {ids})", f"nn.one_hot({ids}, {n})", f"nn.one_hot({ids}, {n}) * {logits.name}",
        f"np.equal({ids}[..., None], np.arange({n})) * {logits.name}", f"np.choose({ids} % 2, [{logits.name}, 0.5])",
        f"-nn.log_softmax({logits.name})[np.arange({logits.name}.shape[0]), {ids}]",
    ))  # fmt: skip
    g.add(text, logits, *used, narrow="one_hot" in text)
