"""sin, cos, and the angle of a point.

x = n * pi/2 + r with |r| <= pi/4: pi/2 in three parts is taken off by fma, of which the first is
exact (Cody and Waite, 1980). Where n is too large for that, all digits of 2/pi that matter are
multiplied as integers (M. Payne and R. Hanek, "Radian Reduction for Trigonometric Functions", SIGNUM
Newsletter 18, 1983). The coefficients are own ones, made as those of `exponentials`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan, pi

from llvmlite import ir

from graphc_numpy.native.lanes import INT32, INT64, Printer, index
from graphc_numpy.native.terms import Term, horner, outlined

_INT128 = ir.IntType(128)
_QUARTERS = ir.VectorType(ir.DoubleType(), 4)


@dataclass(frozen=True)
class _Constants:
    """sin(r) = r + r^3 * sin(r^2), cos(r) = 1 - r^2/2 + r^4 * cos(r^2); quarter: pi/2 in parts.

    limit: up to here x is reduced with them.
    """

    sin: tuple[float, ...]
    cos: tuple[float, ...]
    quarter: tuple[float, float, float]
    magic: float
    limit: float


# Relative errors 4.0e-9 and 1.2e-10
_SINGLE = _Constants(
    (-0.00019518072076607496, 0.008332188241183758, -0.16666655242443085),
    (2.4432336431345902e-05, -0.0013887309469282627, 0.04166664555668831),
    (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    1.5 * 2.0**23,
    2.0**16,
)

# 3.8e-18 and 5.7e-20
_DOUBLE = _Constants(
    (1.5895960780798188e-10, -2.5050742551690307e-08, 2.755731358318858e-06,
     -0.0001984126982945915, 0.008333333333321917, -0.1666666666666663),
    (-1.13587814549263e-11, 2.0875706002844176e-09, -2.7557314221204346e-07,
     2.4801587289014358e-05, -0.0013888888888873355, 0.041666666666666595),
    (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
    1.5 * 2.0**52,
    2.0**30,
)  # fmt: skip


def sin(x: Term) -> Term:
    y = _wave(x, 0)
    return x.equals(0.0).choose(x, y)  # with its sign


def cos(x: Term) -> Term:
    return _wave(x, 1)


def _wave(x: Term, turn: int) -> Term:
    """sin(x + turn * pi/2)"""
    large = ~(abs(x) <= (_DOUBLE if x.double else _SINGLE).limit)
    if x.double:
        return _double_wave(x, turn, large)
    c = _SINGLE
    shifted = x.fma(2 / pi, c.magic)
    n = shifted - c.magic
    r = x
    for part in c.quarter:
        r = n.fma(-part, r)
    y = _turned(shifted.bits(), turn, _sin(r, None), _cos(r, None))

    def wide() -> Term:
        z = outlined("cos" if turn else "sin", cos if turn else sin, x.to(ir.DoubleType()))
        return z.to(ir.FloatType())

    return y.rarely(large, wide)


def _double_wave(x: Term, turn: int, large: Term) -> Term:
    c = _DOUBLE
    shifted = x.fma(2 / pi, c.magic)
    n = shifted - c.magic
    far = n.fma(-c.quarter[0], x)
    middle = n * c.quarter[1]
    lost = n.fma(c.quarter[1], -middle)
    r = far - middle
    rest = ((far - r) - middle) - n.fma(c.quarter[2], lost)
    quarters, high, low = _by_lane(x, large, (n, r, rest))
    high, low = _sum(high, low)
    k = (quarters + c.magic).bits()
    y = _turned(k, turn, _sin(high, low), _cos(high, low))
    return (abs(x) < inf).choose(y, nan)


def _sum(a: Term, b: Term) -> tuple[Term, Term]:
    """(a + b rounded, what that has lost), where |a| >= |b|."""
    s = a + b
    return s, b - (s - a)


def _sin(r: Term, low: Term | None) -> Term:
    """sin(r + low)"""
    z = r * r
    y = horner(z, (_DOUBLE if r.double else _SINGLE).sin) * (z * r)
    if low is None:
        return r + y
    return r + (y + z.fma(low * -0.5, low))  # cos(r) * low


def _cos(r: Term, low: Term | None) -> Term:
    """cos(r + low)"""
    z = r * r
    half = z * 0.5
    near = 1.0 - half
    y = (1.0 - near) - half  # what `near` has lost
    y = (horner(z, (_DOUBLE if r.double else _SINGLE).cos) * z).fma(z, y)
    return near + (y if low is None else y - r * low)


def _turned(n: Term, turn: int, s: Term, c: Term) -> Term:
    """sin of an angle in quadrant n + turn, from its sine and cosine in quadrant 0."""
    n = n + turn
    y = (n & 1).equals(0).choose(s, c)
    sign = (n & 2) << (62 if s.double else 30)
    return (y.bits() ^ sign).from_bits()


# -- of huge arguments -----------------------------------------------------------------------------

# 2/pi = 0.A2F98... in binary, behind 64 zeros: words of 64 bits.
_DIGITS = (
    0x0, 0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041, 0xFE5163ABDEBBC561,
    0xB7246E3A424DD2E0, 0x06492EEA09D1921C, 0xFE1DEB1CB129A73E, 0xE88235F52EBB4484,
    0xE99C7026B45F7E41, 0x3991D639835339F4, 0x9C845F8BBDF9283B, 0x1FF897FFDE05980F,
    0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7, 0x4F463F669E5FEA2D, 0x7527BAC7EBE5F17B,
    0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB, 0xF0CFBC209AF4361D,
)  # fmt: skip


def _by_lane(x: Term, large: Term, parts: tuple[Term, Term, Term]) -> tuple[Term, Term, Term]:
    """The parts (n, r, rest), anew in the lanes where x is large."""
    p, b = x.p, x.p.b
    some = large.value
    if x.width > 1:
        some = p.intrinsic("vector.reduce.or", some, result=ir.IntType(1))
    before = b.block
    with b.if_then(some, likely=False):
        safe = (large & (abs(x) < inf)).choose(x, _DOUBLE.limit)
        mended = _reduced_lanes(safe, large, parts)
        inside = b.block
    phis = []
    for part, value in zip(parts, mended, strict=True):
        phi = b.phi(part.value.type)
        phi.add_incoming(part.value, before)
        phi.add_incoming(value, inside)
        phis.append(Term(p, phi))
    return phis[0], phis[1], phis[2]


def _reduced_lanes(x: Term, large: Term, parts: tuple[Term, Term, Term]) -> list[ir.Value]:
    p, b = x.p, x.p.b
    if x.width == 1:
        found = _call(p, x.value)
        made = [b.extract_element(found, ir.Constant(INT32, k)) for k in range(3)]
        return made

    def body(lane: ir.Value, *values: ir.Value) -> list[ir.Value]:
        found = _call(p, b.extract_element(x.value, lane))
        taken = [b.extract_element(found, ir.Constant(INT32, k)) for k in range(3)]
        return [b.insert_element(v, t, lane) for v, t in zip(values, taken, strict=True)]

    made = p.loop(0, x.width, 1, body, [part.value for part in parts])
    return [large.choose(Term(p, m), q).value for m, q in zip(made, parts, strict=True)]


def _call(p: Printer, x: ir.Value) -> ir.Value:
    """<n mod 4, r, rest, 0> of one f64 of at least `limit`, by a function of its own."""
    module, name = p.b.module, "graphc.quarters"
    found = module.globals.get(name)
    if found is None:
        found = ir.Function(module, ir.FunctionType(_QUARTERS, [ir.DoubleType()]), name)
        found.linkage = "internal"
        found.attributes.add("noinline")
        found.attributes.add("nounwind")
        inner = Printer(ir.IRBuilder(found.append_basic_block()))
        _print_quarters(inner, Term(inner, found.args[0]))
    return p.b.call(found, [x])


def _print_quarters(p: Printer, x: Term) -> None:
    """x = M * 2^E: M times the 192 bits of 2/pi that begin at the weight 2^(1 - E), modulo 4."""
    b, bits = p.b, abs(x).bits()
    exponent = Term(p, b.lshr(bits.value, index(52)))
    whole = (bits & ((1 << 52) - 1)) | (1 << 52)
    place = exponent - (1075 - 62)  # the digits begin at 64, with the weight 1/2
    words = _window(p, place)
    wide = whole.to(_INT128, signed=False)
    low = wide * words[2].to(_INT128, signed=False)
    middle = wide * words[1].to(_INT128, signed=False) + Term(p, b.lshr(low.value, ir.Constant(_INT128, 64)))
    carried = Term(p, b.lshr(middle.value, ir.Constant(_INT128, 64))).to(INT64)
    top, second = whole * words[0] + carried, middle.to(INT64)
    n = Term(p, b.lshr((top + (1 << 61)).value, index(62)))
    high, low_ = _fraction(top - (n << 62), second)
    _return_quarters(p, x, n.to(ir.DoubleType()), high, low_)


def _window(p: Printer, place: Term) -> list[Term]:
    """Three words of the digits, from bit `place` on."""
    name = "graphc.digits"
    digits = p.b.module.globals.get(name)
    t = ir.ArrayType(INT64, len(_DIGITS))
    if digits is None:
        digits = ir.GlobalVariable(p.b.module, t, name)
        digits.linkage, digits.global_constant = "internal", True
        digits.initializer = ir.Constant(t, [ir.Constant(INT64, d) for d in _DIGITS])
    first, shift = place >> 6, place & 63
    addresses = [p.b.gep(digits, [(first + k).value], source_etype=INT64) for k in range(4)]
    words = [p.b.load(a, typ=INT64) for a in addresses]
    pairs = zip(words, words[1:], strict=False)
    return [Term(p, p.intrinsic("fshl", high, low, shift.value)) for high, low in pairs]


def _fraction(top: Term, second: Term) -> tuple[Term, Term]:
    """A signed fixed-point number with 62 and 64 more bits, as a sum of two f64."""
    p, double = top.p, ir.DoubleType()
    halves = [top >> 32, top & 0xFFFFFFFF, Term(p, p.b.lshr(second.value, index(32))), second & 0xFFFFFFFF]
    weights = (2.0**-30, 2.0**-62, 2.0**-94, 2.0**-126)
    a, c, d, e = (h.to(double) * w for h, w in zip(halves, weights, strict=True))
    high, low = _two_sum(a, c)
    return _two_sum(high, low + (d + e))


def _two_sum(a: Term, b: Term) -> tuple[Term, Term]:
    """(a + b rounded, what that has lost)"""
    s = a + b
    back = s - a
    return s, (a - (s - back)) + (b - back)


def _return_quarters(p: Printer, x: Term, n: Term, high: Term, low: Term) -> None:
    """Times pi/2, with the sign of x."""
    first, second, _ = _DOUBLE.quarter
    r = high * first
    rest = high.fma(first, -r) + high.fma(second, low * first)
    below = x < 0.0
    found: ir.Value = ir.Constant(_QUARTERS, [ir.Constant(ir.DoubleType(), 0.0)] * 4)
    for k, part in enumerate((n, r, rest)):
        value = below.choose(-part, part).value
        found = p.b.insert_element(found, value, ir.Constant(INT32, k))
    p.b.ret(found)
