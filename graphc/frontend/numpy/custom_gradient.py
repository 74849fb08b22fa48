"""`graphc.custom_gradient`: a traced function with a gradient rule of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from graphc.frontend.numpy.differentiating import check_callable, single
from graphc.frontend.numpy.pytree import Structure, flatten
from graphc.frontend.numpy.session import TraceSession, current
from graphc.frontend.numpy.tracer import Tracer, unwrap
from graphc.frontend.operands import operand
from graphc.ir.builder import Builder, Value
from graphc.ir.op import op_named
from graphc.support.caller import user_span
from graphc.support.errors import GraphcError, Span

Function = Callable[..., Any]


def custom_gradient(fun: Function, backward: Function | None = None) -> Function:
    """A function like `fun` whose gradient is what a function of yours gives.

    `fun(*args)` returns (y, backward), as JAX's and TensorFlow's custom_gradient do: y is one
    array, and backward(g), of the gradient g of y, returns the gradient of each argument: an array
    or tree like the argument, or None; a tuple of these if there are several arguments.

    @graphc.custom_gradient
    def round_through(x):  # straight-through: rounds, with the gradient of the identity
        return np.round(x), lambda g: g

    With `backward`, fun returns y alone, and the rule is backward(g, *args):

    round_through = graphc.custom_gradient(np.round, lambda g, x: g)

    backward is traced once, where the function is called, into ordinary nodes: it may use whatever
    the function computed, and is differentiated in turn for gradients of higher order. Arguments
    are trees; leaves that are not float arrays, and arguments by name, have no gradient.

    Raises G0317 if a gradient does not fit, and G0318 if fun reads, from an outer scope, a value
    that is differentiated by.
    """

    check_callable("graphc.custom_gradient", fun)

    @wraps(fun)
    def call(*args: Any, **options: Any) -> Any:
        session, span = current("graphc.custom_gradient()"), user_span()
        flat = [flatten(x, f"argument {i}") for i, x in enumerate(args)]
        forms = [form for _, form in flat]
        leaves = [_arguments(session, given, span) for given, _ in flat]
        trees = [form.build(x) for form, x in zip(forms, leaves, strict=True)]
        if backward is None:
            y, rule = _pair(fun(*trees, **options), span)
        else:
            y, rule = fun(*trees, **options), lambda g: backward(g, *trees, **options)
        return _with_rule(session, _result(session, y, span), rule, leaves, forms, span)

    return call


def _arguments(session: TraceSession, leaves: dict[str, Any], span: Span | None) -> dict[str, Any]:
    """The leaves of an argument, with nodes of their own for the floats among them."""
    f, given = session.builder, dict(leaves)
    with f.at(span):
        for name, x in leaves.items():
            if isinstance(x, Tracer) and (v := unwrap(x, f)).dtype.kind == "f":
                given[name] = Tracer(session, f.add(op_named("primal")(), (v,)))
    return given


def _pair(returned: Any, span: Span | None) -> tuple[Any, Function]:
    match returned:
        case (y, rule) if callable(rule):
            return y, rule
        case _:
            raise GraphcError(
                "G0317",
                "a function with a custom gradient returns (its result, its backward function)",
                span=span,
                help="or give the backward function: graphc.custom_gradient(fun, backward)",
            )


def _result(session: TraceSession, y: Any, span: Span | None) -> Value:
    f = session.builder
    with f.at(span):
        try:
            return single(f, y)
        except GraphcError as error:
            text = f"a function with a custom gradient returns one array, not a {type(y).__name__}"
            help = "give each result a function of its own, or np.stack them"
            raise GraphcError("G0317", text, span=span, help=help) from error


def _with_rule(
    session: TraceSession, y: Value, rule: Function, leaves: Sequence[dict[str, Any]],
    forms: Sequence[Structure], span: Span | None,
) -> Tracer:  # fmt: skip
    """The result with its gradient rule: see the op `custom_gradient`."""
    f = session.builder
    if y.dtype.kind != "f":
        return Tracer(session, y)
    with f.at(span):
        key = f.key("cotangent")
        g = f.cotangent(shape=y.shape, key=key, dtype=y.dtype, extents=y.type.extents)
    ends = _ends(f)
    returned = rule(Tracer(session, g))
    if _ends(f) != ends:
        text = "the backward function reports, writes a state or minimizes"
        raise GraphcError("G0317", text, span=span, help="do so in the function itself")
    with f.at(span):
        pairs = _paired(f, returned, leaves, forms, span)
        operands = [x for pair in pairs for x in pair]
        return Tracer(session, f.add(op_named("custom_gradient")(), (y, g, *operands)))


def _ends(f: Builder) -> tuple[int, ...]:
    return len(f.outputs), len(f.updates)


def _paired(
    f: Builder, returned: Any, leaves: Sequence[dict[str, Any]], forms: Sequence[Structure],
    span: Span | None,
) -> list[tuple[Value, Value]]:  # fmt: skip
    """Each float argument with its gradient. Raises G0317."""
    parts = returned if isinstance(returned, tuple) and len(leaves) != 1 else (returned,)
    if len(leaves) == 1 and isinstance(returned, tuple) and len(returned) == 1:
        parts = returned  # as JAX has it
    if len(parts) != len(leaves):
        text = f"backward does not return a gradient for each of the {len(leaves)} arguments"
        help = "return a tuple with one for each argument; None is no gradient"
        raise GraphcError("G0317", text, span=span, help=help)
    pairs = []
    for part, xs, form in zip(parts, leaves, forms, strict=True):
        if part is None:
            slopes, given = dict.fromkeys(xs, 0.0), form
        else:
            slopes, given = flatten(part, next(iter(xs), "x"))
        if len(slopes) != len(xs) or (given != form and len(xs) > 1):
            text = f"a gradient has the leaves {', '.join(slopes)}, its argument {', '.join(xs)}"
            raise GraphcError("G0317", text, span=span)
        for (name, x), slope in zip(xs.items(), slopes.values(), strict=True):
            if isinstance(x, Tracer) and (v := unwrap(x, f)).dtype.kind == "f":
                pairs.append((v, _fitting(f, name, v, slope, span)))
    return pairs


def _fitting(f: Builder, name: str, x: Value, slope: Any, span: Span | None) -> Value:
    """The gradient as a value of the argument's type. Raises G0317 if it has another shape."""
    if type(slope) is float and slope == 0:
        return f.zeros_like(x)
    g = f.lift(operand(f, unwrap(slope, f)), x.dtype)
    if g.shape != x.shape or g.dtype.kind != "f":
        text = f"the gradient of {name} is {g.type}, but {name} is {x.type}"
        origin = g.node.origin
        raise GraphcError(
            "G0317",
            text,
            span=origin or span,
            labels=((span, "the function is called here"),)
            if span and origin not in (None, span)
            else (),
            help="sum a gradient over the dims along which the argument was broadcast"
            if len(g.shape) > len(x.shape)
            else None,
        )
    g = f.to_dtype(g, x.dtype)
    if g.type.extents != x.type.extents:
        g = f.add(op_named("add")(), (g, f.zeros_like(x)))
    return g
