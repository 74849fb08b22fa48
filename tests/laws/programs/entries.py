"""Statements that work entry by entry: functions, arithmetic with broadcasting, choices, casts."""

from __future__ import annotations

from laws.programs.grow import Grower, Skip, Var, piece

SMOOTH = (
    "np.tanh({})", "np.sin({})", "np.cos({})", "np.exp({} * 0.3)", "np.arctan({})",
    "np.sqrt({} * {} + 0.5)", "np.log1p({} * {})", "np.log(np.abs({}) + 1.5)", "np.expm1({} * 0.2)",
    "1 / (1 + np.exp(-{}))", "np.reciprocal({} * {} + 1)", "np.sinh({} * 0.2)", "np.cosh({} * 0.2)",
    "np.log2({} * {} + 1)", "np.log10(np.square({}) + 1)", "np.exp2({} * 0.3)", "np.cbrt({} ** 2 + 1)",
    "np.arcsinh({})", "np.arctanh(np.tanh({}) * 0.7)", "np.arcsin(np.sin({}) * 0.7)", "np.tan({} * 0.1)",
    "np.deg2rad({})", "np.rad2deg({} * 0.01)", "np.logaddexp({}, 0)", "np.logaddexp(-1.0, {})",
    "np.sinc({} * 0.1)", "nn.sigmoid({})", "nn.softplus({})", "nn.silu({})", "2.0 ** ({} * 0.3)",
    "np.power(np.abs({}) + 1, 1.5)", "np.hypot({}, 1.5)", "np.arctan2({}, 1.5)", "np.nan_to_num({})",
    "np.log1p(np.exp({}))", "np.float_power(np.abs({}) + 1, 0.5)", "np.arccosh({} * {} + 1.5)",
    "np.ldexp({}, 1)", "np.conjugate({})", "np.real({})",
)  # fmt: skip
EXACT = (
    "-{}", "+{}", "{} * {}", "np.square({})", "{} ** 2", "{} ** 3", "2 * {}", "{} * 0.5", "{} / 2",
    "1 - {}", "{} + 0.25", "0.75 - {}", "np.negative({})", "{} + True", "{} - np.float32(1.5)",
    "np.array(2.0) * {}", "{} / np.array(4)", "np.copy({})", "np.positive({})", "{}.copy()",
)  # fmt: skip
KINKED = (
    ("np.abs({})", 0), ("abs({})", 0), ("np.fabs({})", 0), ("np.sign({})", 0), ("np.maximum({}, 0)", 0),
    ("np.minimum({}, 0.5)", 0.5), ("np.clip({}, -1, 1)", None), ("{}.clip(0.25, 2)", None),
    ("np.maximum(-0.5, {})", -0.5), ("np.heaviside({}, 0.5)", 0), ("nn.relu({})", 0),
    ("np.where({} > 0.25, {}, 0.5)", 0.25), ("np.where({} <= 0, 0.1 * {}, {})", 0),
    ("np.where({} != 1, {}, 3)", 1), ("np.fmax({}, 1)", 1), ("np.fmin(0, {})", 0),
    ("np.copysign({}, 2.0)", 0), ("np.copysign(1.5, {})", 0), ("np.floor({})", "whole"),
    ("np.ceil({})", "whole"), ("np.trunc({})", "whole"), ("np.rint({})", "half"),
    ("np.round({})", "half"), ("np.modf({})[0]", "whole"), ("np.fix({})", "whole"),
    ("{} // 1", "whole"), ("{} % 1", "whole"), ("np.fmod({}, 1)", "whole"),
    ("np.mod({}, 2)", "whole"), ("np.divmod({}, 1)[1]", "whole"), ("3 % ({} * {} + 2)", "never"),
)  # fmt: skip


def filled(text: str, *names: str) -> str:
    """The text with all holes filled by the names, in turns."""
    for i in range(text.count("{}")):
        text = text.replace("{}", names[i % len(names)], 1)
    return text


@piece(3)
def smooth(g: Grower) -> None:
    x = g.float()
    g.add(filled(g.of(SMOOTH), x.name), x)


@piece(2)
def exactly(g: Grower) -> None:
    x = g.float()
    g.add(filled(g.of(EXACT), x.name), x, exact=True)


@piece(2)
def kinked(g: Grower) -> None:
    x = g.float()
    text, at = g.of(KINKED)
    if x.wild and "copysign" in text:
        raise Skip  # NaN has a sign, of which nothing is promised
    match at:
        case "whole":
            g.apart(x, _rounded(x))
        case "half":
            g.apart(x, _halves(x))
        case "never":
            raise Skip
        case None:
            for edge in (-1, 1, 0.25, 2):
                g.apart(x, edge)
        case float() | int():
            g.apart(x, at)
    g.add(filled(text, x.name), x, exact=True)


def _rounded(x: Var) -> Var:
    """The whole numbers next to x."""
    full, short = (v.round() for v in x.values)
    return Var("", (full, short), x.trained, True)


def _halves(x: Var) -> Var:
    full, short = ((v - 0.5).round() + 0.5 for v in x.values)
    return Var("", (full, short), x.trained, True)


# -- two operands ---------------------------------------------------------------------------------

ARITHMETIC = ("{} + {}", "{} - {}", "{} * {}", "np.add({}, {})", "np.multiply({}, {})")
ROUNDED = (
    "{} / (np.square({}) + 1)", "np.arctan2({}, np.abs({}) + 1)", "np.hypot({}, np.abs({}) + 0.5)",
    "np.logaddexp({}, {})", "np.power(np.abs({}) + 0.5, np.tanh({}))", "{} / (np.exp({} * 0.2) + 1)",
    "np.sin({}) * np.cos({})", "np.logaddexp2({}, {})", "np.divide({}, {} * {} + 2)",
)  # fmt: skip
COMPARED = (
    "np.maximum({}, {})", "np.minimum({}, {})", "np.where({} > {}, 0.5, -1)", "np.fmax({}, {})",
    "np.where({0} < {1}, {0}, 0.5 * {1})", "({} >= {})", "({} == {})", "np.less({}, {})",
    "({} != {})", "np.greater_equal({}, {})", "np.where({0} < {1}, {0} * {1}, 0)", "np.fmin({}, {})",
    "np.isclose({}, {})", "np.heaviside({} - {}, 1)",
)  # fmt: skip


def companion(g: Grower, a: Var) -> Var:
    """Something that broadcasts with a: itself, a parameter, a part of it, another value."""
    match g.rng.randrange(8):
        case 0:
            return a
        case 1 | 2:
            lengths = [1 if a.is_batch(d) or g.chance(0.25) else n for d, n in enumerate(a.shape)]
            return g.param(*lengths[g.rng.randrange(len(lengths) + 1) :])
        case 3 if a.rank:
            axis = g.axis(a)
            return g.add(f"np.mean({a.name}, axis={axis}, keepdims=True)", a)
        case 4 if a.rank:
            return g.add(f"{a.name}[..., {g.of((':1', '-1:', '0:1'))}]", a, exact=True)
        case 5 if a.rank:
            return g.add(
                f"np.expand_dims({a.name}.sum({g.axis(a)}) * 0.25, {g.axis(a)})", a, exact=True
            )
        case _:
            return g.float()


@piece(4)
def arithmetic(g: Grower) -> None:
    a = g.float()
    b = companion(g, a)
    a, b = (b, a) if g.chance(0.3) else (a, b)
    exact = g.chance(0.7)
    g.add(filled(g.of(ARITHMETIC if exact else ROUNDED), a.name, b.name), a, b, exact=exact)


@piece(2)
def compared(g: Grower) -> None:
    a = g.float()
    b = companion(g, a)
    g.apart(a, b)
    text = g.of(COMPARED)
    text = text.format(a.name, b.name) if "{0}" in text else filled(text, a.name, b.name)
    g.add(text, a, b, exact=True, narrow=True)


@piece(1)
def chosen(g: Grower) -> None:
    """Where a mask says so."""
    mask, a = g.any("b"), g.float()
    b = companion(g, a)
    text = g.of((
        "np.where({m}, {a}, {b})", "np.where({m}, {a}, 0)", "{m} * {a}", "np.where(~{m}, 0.5, {a})",
        "{m} + {a}", "np.where({m}, 1.0, -1.0) * {a}", "np.select([{m}, ~{m}], [{a}, {b}])",
        "np.select([{m}], [{a}], 0.25)", "np.where({m}, 2, 0.75)", "{m}.astype(F) * {a}",
    ))  # fmt: skip
    narrow = "{a}" not in text.replace("{m}.astype(F) * {a}", "")
    g.add(text.format(m=mask.name, a=a.name, b=b.name), mask, a, b, exact=True, narrow=narrow)


# -- integers, bools, casts -----------------------------------------------------------------------

INTEGERS = (
    "{} + 1", "2 * {}", "{} - {}", "{} * {}", "{} // 2", "{} % 3", "-{}", "5 - {}", "{} ** 2",
    "np.maximum({}, 1)", "np.minimum({}, {})", "np.abs({} - 2)", "np.sign({} - 1)", "{} // ({} + 1)",
    "np.clip({}, 1, 2)", "{} % 4 - 2", "np.square({})", "7 // ({} * {} + 1)", "7 % ({} + 1)",
    "({} > 1)", "({} == {})", "({} % 2 == 0)", "np.equal({}, 1)", "np.isin({}, [0, 2])",
    "np.bitwise_and({}, 1)", "{} & 3", "{} | 1", "{} ^ {}", "~{}", "np.invert({})", "{}.astype(bool)",
    "np.where({} > 1, {}, 0)", "np.where({} > 1, {}, -1)", "np.fmod(-{}, 3)", "(-{}) // 2", "(-{}) % 3",
    "{}.astype(np.int64) * 3", "{}.astype(np.int32) + {}",
)  # fmt: skip
FLOATED = (
    "{} * 0.5", "{} / 2", "1 / ({} * {} + 1)", "{}.astype(F)", "np.sqrt({}.astype(F))", "{} + 0.25",
    "np.sin({} * 1.0)", "np.exp({} * 0.1)", "0.5 ** {}", "np.tanh({} - 0.5)", "{}.astype(np.float32)",
    "np.where({} > 0, 0.1, 0.7)", "nn.one_hot({}, 3)", "nn.one_hot({}, 1)", "{} * np.pi",
)  # fmt: skip


@piece(1)
def integers(g: Grower) -> None:
    a = g.any("iu")
    b = g.any("iu") if g.chance(0.4) else a
    g.add(filled(g.of(INTEGERS), a.name, b.name), a, b, exact=True)


@piece(1)
def floated(g: Grower) -> None:
    a = g.any("iub")
    g.add(filled(g.of(FLOATED), a.name), a)


@piece(1)
def mixed(g: Grower) -> None:
    """A float beside an integer or a bool."""
    a, b = g.float(), g.any("iub")
    g.add(g.of(("{} * {}", "{} + {}", "{} - {}")).format(a.name, b.name), a, b, exact=True)


@piece(0.7)
def logical(g: Grower) -> None:
    a = g.any("b")
    b = g.any("b") if g.chance(0.6) else a
    text = g.of((
        "{} & {}", "{} | {}", "~{}", "np.logical_xor({}, {})", "np.logical_and({}, {})", "{} ^ {}",
        "np.logical_not({})", "{}.astype(np.int32)", "{} == {}", "{} * 2", "{}.astype(F)", "{} + 0",
    ))  # fmt: skip
    g.add(filled(text, a.name, b.name), a, b, exact=True)


@piece(0.6)
def tested(g: Grower) -> None:
    """A bool of a float."""
    a = g.float()
    text, at = g.of((
        ("({} > 0.25)", 0.25), ("({} <= 0)", 0), ("(0.5 < {})", 0.5), ("np.isfinite({})", None),
        ("np.isnan({})", None), ("np.signbit({})", 0), ("{}.astype(bool)", 0), ("np.isinf({})", None),
        ("np.logical_not({})", 0), ("np.logical_or({}, 0)", 0),
    ))  # fmt: skip
    if at is not None:
        g.apart(a, at)
    if a.wild and "signbit" in text:
        raise Skip
    g.add(filled(text, a.name), a, exact=True)


@piece(0.5)
def cut_to_integers(g: Grower) -> None:
    a = g.float()
    g.apart(a, _rounded(a))
    g.add(
        g.of(("{}.astype(np.int32)", "np.trunc({}).astype(np.int64)")).format(a.name), a, exact=True
    )


@piece(0.35)
def half(g: Grower) -> None:
    """Half precision, and back at times."""
    a = g.float()
    name = g.of(("bfloat16", "float16"))
    back = g.of(("", ".astype(F)", ".astype(F)"))
    g.add(f"{a.name}.astype({name}){back}", a, coarse=True)


@piece(0.4)
def precise(g: Grower) -> None:
    """f64 beside f32."""
    a = g.float()
    text = g.of((
        "{}.astype(np.float64)", "{} + np.array([0.1])", "{}.astype(F)", "{} * np.float64(0.1)",
        "np.full({}.shape, 0.5, F) * {}", "np.zeros_like({}) + {}", "np.ones_like({}) - {}",
        "np.full_like({}, 0.1) + {}",
    ))  # fmt: skip
    g.add(filled(text, a.name), a)


@piece(1)
def counted(g: Grower) -> None:
    """The size of the batch in arithmetic."""
    a = g.any("f", lambda v: bool(v.rank) and v.is_batch(0))
    n = f"{a.name}.shape[0]"
    text = g.of((
        "{x} / {n}", "{x} * {n}", "({n} - 1) * {x}", "{x} + {n}", "1.0 / {n} * {x}", "{x} * (1 / {n})",
        "{x} / ({n} + 1)", "{x} * {n} ** 2", "{x} - 0.5 * {n}", "np.sum({x}) / {n}", "{n} - {x}",
        "np.sum({x}, axis=0) / {n}", "np.maximum({x} * 0 + 1.0, {n})", "2 * {n} + {x}", "{n} // 2 + {x}",
        "{x} * (0.5 / ({n} + 1))", "{x} / {x}.size", "np.where({x} == 99, {n}, {x})",
    ))  # fmt: skip
    g.add(text.format(x=a.name, n=n), a)
