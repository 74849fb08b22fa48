"""What a traced function returns: the loss, metrics and a new state."""

from __future__ import annotations

from typing import Any

from graphc.frontend.numpy.declare import add_loss, output, write
from graphc.frontend.numpy.pytree import Structure, flatten
from graphc.frontend.numpy.session import TraceSession
from graphc.frontend.numpy.tracer import Tracer, unwrap
from graphc.frontend.operands import value
from graphc.support.errors import GraphcError, Span


def take_result(
    session: TraceSession, returned: Any, optimizer: Any, words: tuple[str, str, str],
    span: Span | None, state_form: Structure | None,
) -> None:  # fmt: skip
    """Enter what the function returned: its loss, its metrics, and its new state.

    words: order, reduction, sparse (see `add_loss`); span: of the function. Raises G0301, G0809.
    """
    loss, new_state, metrics = _parts(returned, state_form is not None)
    with session.builder.at(span):
        try:
            if loss is not None:
                add_loss(session, loss, optimizer, None, *words)
            elif optimizer is not None and not session.losses:
                raise GraphcError(*_NO_LOSS, help="end with `return loss`")
            if state_form is not None:
                _update_state(session, new_state, state_form)
            named = flatten(metrics, "metric")[0] if metrics is not None else {}
            for name, x in named.items():
                output(session, name, x)
            if not session.builder.outputs:
                raise GraphcError(*_NO_LOSS, help="end with `return loss`")
        except GraphcError as error:
            raise error.at(span) from None


_NO_LOSS = ("G0809", "the function returns no loss")


def _parts(returned: Any, with_state: bool) -> tuple[Any, Any, Any]:
    """(loss, new state, metrics) of what the function returned. Raises G0809."""
    match returned:
        case (loss, new_state, dict() as metrics) if with_state:
            return loss, new_state, metrics
        case (loss, new_state) if with_state:
            return loss, new_state, None
        case (loss, dict() as metrics) if not with_state:
            return loss, None, metrics
        case dict() if not with_state:
            return None, None, returned
        case Tracer() | None | int() | float() if not with_state:
            return returned, None, None
        case _:
            wanted = "(loss, new_state[, metrics])" if with_state else "loss or (loss, metrics)"
            text = f"the function returns a {type(returned).__name__}, not {wanted}"
            raise GraphcError("G0809", text)


def _update_state(session: TraceSession, new_state: Any, form: Structure) -> None:
    f = session.builder
    leaves, new_form = flatten(new_state, "state")
    if new_form != form:
        raise GraphcError(
            "G0809",
            f"the new state has the leaves {', '.join(leaves) or 'none'}, "
            f"the state has {', '.join(form.names) or 'none'}",
        )
    for name, x in leaves.items():
        new = value(f, unwrap(x, f))
        if new.name != f.read(name).name:
            write(session, name, new)
