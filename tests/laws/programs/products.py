"""Statements that multiply and add: matrix products, einsum, convolutions and pools."""

from __future__ import annotations

from laws.programs.grow import Grower, Skip, Var, piece


@piece(4)
def dense(g: Grower) -> None:
    """The last dim (or the first) times a parameter."""
    x = g.float(1)
    k, n = x.shape[-1], g.size()
    match g.rng.randrange(6):
        case 0:
            w = g.param(k)
            g.add(
                g.of(("{x} @ {w}", "np.dot({x}, {w})", "np.inner({x}, {w})")).format(
                    x=x.name, w=w.name
                ),
                x,
                w,
                exact=True,
            )
        case 1:
            w = g.param(n, k)
            text = g.of(
                ("{x} @ {w}.T", "np.inner({x}, {w})", "np.tensordot({x}, {w}, ([-1], [1]))")
            )
            g.add(text.format(x=x.name, w=w.name), x, w, exact=True)
        case 2 if x.rank > 1 and not x.is_batch(x.rank - 2):
            w = g.param(n, x.shape[-2])
            g.add(f"{w.name} @ {x.name}", x, w, exact=True)
        case _:
            w = g.param(k, n)
            text = g.of((
                "{x} @ {w}", "{x} @ {w}", "np.matmul({x}, {w})", "({x} @ {w})[..., 0]", "({x} @ {w}).T",
                "np.dot({x}, {w})", "np.tensordot({x}, {w}, 1)", "({x} @ {w})[..., ::-1]",
                "({x} @ {w}).reshape(-1)", "({x} @ {w}).squeeze()", "({x} @ {w})[..., None]",
                "np.einsum('...k,kn->...n', {x}, {w})", "({x} @ {w})[..., 1:]", "({x} @ {w})[..., :1]",
            ))  # fmt: skip
            text = text.replace(".squeeze()", "") if 1 in g.sizes else text
            g.add(text.format(x=x.name, w=w.name), x, w, exact=True)


@piece(2)
def product(g: Grower) -> None:
    """Two values, of which both may be vectors, or have batch dims."""
    a = g.float(1)
    b = g.float(1) if g.chance(0.7) else a
    text = g.of((
        "{a} @ {b}", "{a} @ {b}.T", "{a}.T @ {b}", "np.matmul({a}, {b}.mT)", "{a}.mT @ {b}", "np.dot({a}, {b})",
        "np.inner({a}, {b})", "np.outer({a}, {b})", "np.vecdot({a}, {b})", "np.tensordot({a}, {b}, 1)",
        "np.tensordot({a}, {b}, ([0], [0]))", "np.vdot({a}, {b})", "np.kron({a}, {b})", "np.sum({a} * {b})",
        "{a}[:, None] * {b}", "{a}[..., None] * {b}[..., None, :]", "{a}[:, :, None] @ {b}[:, None, :]",
        "np.sum({a}[..., None] * {b}, axis=-2)", "np.multiply.outer({a}, {b})", "np.sum({a} * {b}, axis=-1)",
        "({a}[..., None, :] @ {b}[..., :, None])[..., 0, 0]", "np.matvec({b}, {a})", "np.vecmat({a}, {b})",
        "np.cross({a}, {b})", "np.linalg.multi_dot([{a}, {b}, {a}.T])", "np.linalg.matrix_power({a}, 2)",
    ))  # fmt: skip
    g.add(text.format(a=a.name, b=b.name), a, b, exact=True)


@piece(3)
def einsum(g: Grower) -> None:
    """Any letters: shared, summed, on a diagonal, in any order."""
    # Infinities are left out: a factor may be taken out of a sum.
    xs = [g.any("f", lambda v: v.rank < 4 and not v.wild) for _ in range(g.of((1, 2, 2, 2, 3)))]
    lengths: dict[str, tuple[int, int]] = {}
    terms = [_letters(g, x, lengths) for x in xs]
    used = list(dict.fromkeys("".join(terms)))
    kept = [c for c in used if g.chance(0.6)]
    g.rng.shuffle(kept)
    arrow = f"->{''.join(kept)}" if g.chance(0.9) else ""
    g.add(
        f"np.einsum('{','.join(terms)}{arrow}', {', '.join(x.name for x in xs)})", *xs, exact=True
    )


def _letters(g: Grower, x: Var, lengths: dict[str, tuple[int, int]]) -> str:
    term = ""
    for d in range(x.rank):
        here = (x.shape[d], x.values[1].shape[d])
        same = [c for c, n in lengths.items() if n == here and (c not in term or g.chance(0.1))]
        if same and g.chance(0.7):
            term += g.of(same)
        else:
            letter = "abcdefghijklmnop"[len(lengths)]
            lengths[letter] = here
            term += letter
    return term


# -- windows --------------------------------------------------------------------------------------


def _picture(g: Grower, rank: int) -> Var:
    """A batch of pictures [n, lengths.., channels]: one that is there, or something reshaped."""
    fit = [
        v
        for v in g.pool
        if v.kind == "f" and v.rank == rank + 2 and not any(map(v.is_batch, range(1, v.rank)))
    ]
    if fit and g.chance(0.7):
        return g.of(fit)
    lengths = tuple(g.of((1, 2, 3, 4, 5, 6)) for _ in range(rank))
    if len(g.leaves) > 7:
        raise Skip
    return g.leaf(
        "batch", (None, *lengths, g.of((1, 1, 2, 3, 4, 6))), "float32", g.of(("normal", "grid"))
    )


@piece(1.5)
def convolution(g: Grower) -> None:
    """Strided, dilated, in groups, of one channel each (depthwise) or several."""
    rank = g.of((1, 2, 2))
    x = _picture(g, rank)
    c = x.shape[-1]
    groups = g.of([k for k in (1, 1, 1, 2, 3, c) if k and c % k == 0])
    taps = [g.of((1, 1, 2, 3)) for _ in range(rank)]
    w = g.param(*taps, c // groups, groups * g.of((1, 1, 2, 3)))
    padding = g.of(("'same'", "'valid'", "'valid'", "1", "2"))
    options = [
        f"stride={g.of((1, 1, 2, 3))}", f"padding={padding}", f"dilation={g.of((1, 2))}",
        f"groups={groups}",
    ]  # fmt: skip
    some = [o for o in options if o != "groups=1" and (o.startswith("groups") or g.chance(0.6))]
    g.add(f"nn.conv{rank}d({', '.join([x.name, w.name, *some])})", x, w, exact=True)


@piece(1)
def pooled(g: Grower) -> None:
    x = _picture(g, 2)
    name = g.of(("max_pool", "avg_pool"))
    if name == "max_pool":
        for d in (1, 2):
            g.ordered(x, f"({d}, {3 - d})")
    text = g.of(
        (
            "",
            ", 1",
            ", 3",
            ", 2, 1",
            ", 3, 2",
            ', 2, padding="same"',
            ', 3, 1, padding="same"',
            ", 1, 2",
        )
    )
    g.add(f"nn.{name}({x.name}{text})", x, exact=name == "max_pool")


@piece(0.7)
def convolved(g: Grower) -> None:
    """Windows written in NumPy: shifted slices, and np.convolve."""
    x = g.float(1)
    n = x.shape[-1]
    w = g.param(g.of((1, 2, 3)))
    taps = w.shape[0]
    if x.is_batch(x.rank - 1):
        raise Skip
    shifted = " + ".join(
        f"{x.name}[..., {i}:{n - taps + 1 + i}] * {w.name}[{i}]" for i in range(taps)
    )
    options = [shifted]
    if x.rank == 1:
        options += [
            f'np.{f}({x.name}, {w.name}, "{mode}")'
            for f in ("convolve", "correlate")
            for mode in ("full", "same", "valid")
        ]
    g.add(g.of(options), x, w, exact=True)


@piece(0.8)
def attention(g: Grower) -> None:
    """Queries, keys and values, of one query too."""
    k = g.any("f", lambda v: v.rank > 1 and not any(map(v.is_batch, (v.rank - 2, v.rank - 1))))
    q = g.of((f"{k.name}[..., :1, :]", k.name, f"{k.name}[..., -1:, :]", f"{k.name}[..., ::-1, :]"))
    causal = ", causal=True" if q == k.name and g.chance(0.3) else ""
    options = [f"nn.attention({q}, {k.name}, {k.name}{causal})"]
    scores = f"nn.softmax({q} @ np.swapaxes({k.name}, -1, -2) * 0.5)"
    options += [scores, f"{scores} @ {k.name}", f"np.tanh({scores})"]
    g.add(g.of(options), k)
