"""`graphc.custom_op`: a NumPy function as an op of traced steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import numpy as np

from graphc.frontend.numpy.custom_gradient import custom_gradient
from graphc.frontend.numpy.session import current
from graphc.frontend.numpy.tracer import Tracer, unwrap
from graphc.frontend.operands import value
from graphc.ir.types import TensorType, dtype_of
from graphc.ops.custom_op import CustomOp, register_function, whole_rule
from graphc.support.caller import user_frame, user_span
from graphc.support.errors import GraphcError

Function = Callable[..., Any]


class ArrayType(NamedTuple):
    """What a type rule sees of an argument, and returns of the result."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def custom_op(
    fun: Function | None = None,
    *,
    type: Function | None = None,
    dims: str | None = None,
    gradient: Function | None = None,
    name: str | None = None,
) -> Any:
    """A NumPy function that a traced step may call: at run time it gets arrays, and returns one.

    fun:      a pure function of arrays to one array; several devices may call it at a time
    type:     the type rule: from an object with `shape` and `dtype` for each argument to that of
              the result, such as `lambda x: (x.shape[:1], x.dtype)`. None: that of the first
              argument
    dims:     the dims rule, "b n! -> b n!": the result has the letters of the arguments' dims. A
              device that has a part of the rows b calls fun on its part; `!` marks a dim that is
              needed whole. None: all dims are, so the op is never split, and whatever the strategy
              splits is gathered for it
    gradient: `gradient(g, *args)`, traced, gives the gradient of each argument from that of the
              result, as graphc.custom_gradient says. None: to differentiate by the op is an error
    name:     the name under which plans know it; by default that of fun

    As a decorator: `@graphc.custom_op(type=...)`. It returns a function of traced arrays. A plan
    with the op names it as `module:name`, by the module that calls custom_op, which is imported
    where the plan runs (`graphc run FILE --import module`), or announced by an installed package as
    an entry point of the group `graphc.ops`.

    Raises G0811 for rules that do not fit, and G0807 outside of a traced function.
    """
    if fun is None:
        return lambda fun: custom_op(fun, type=type, dims=dims, gradient=gradient, name=name)
    frame = user_frame()
    module = frame.f_globals.get("__name__", "__main__") if frame else "__main__"
    called = name or str(getattr(fun, "__qualname__", fun.__class__.__name__))
    path = register_function(f"{module}:{called}", fun)
    rule = type or (lambda x, *_: x)

    @wraps(fun)
    def call(*args: Any) -> Any:
        session, span = current(f"the custom op {called}()"), user_span()
        f = session.builder
        with f.at(span):
            try:
                xs = [value(f, unwrap(x, f)) for x in args]
                result = _result_type(called, rule, [x.type for x in xs])
                text = dims or whole_rule([x.rank for x in xs], len(result.shape))
                op = CustomOp(path, result.shape, result.dtype, text)
                return Tracer(session, f.add(op, xs))
            except GraphcError as error:
                raise error.at(span) from None

    return custom_gradient(call, gradient) if gradient is not None else call


def _result_type(name: str, rule: Function, types: list[TensorType]) -> TensorType:
    """What the type rule says. Raises G0811."""
    try:
        said = rule(*(ArrayType(t.shape, t.dtype.numpy) for t in types))
        shape, dtype = said if isinstance(said, tuple) else (said.shape, said.dtype)
        return TensorType(tuple(int(n) for n in shape), dtype_of(np.dtype(dtype)))
    except GraphcError:
        raise
    except Exception as error:
        given = ", ".join(map(str, types))
        raise GraphcError(
            "G0811",
            f"the type rule of {name} fails for {given}: {error}",
            help="it gets an object with shape and dtype for each argument, and returns one, or "
            "(shape, dtype)",
        ) from error
