"""`dataclass` as the standard library has it, made in less than half of the time.

For each class, the standard library writes the text of up to seven methods and compiles each by
itself, which takes about 0.45 ms; half a thousand classes are made before a small first step ends.
Here only `__init__` is compiled at once, from a text in which nothing but names of fields varies,
`==` and the hash when they are first called, and the other methods are ordinary functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]


def _dataclass(
    cls: type | None = None, /, *, init: bool = True, repr: bool = True, eq: bool = True,
    frozen: bool = False, slots: bool = False,
) -> Any:  # fmt: skip
    """What `dataclasses.dataclass` makes of a class with these options.

    Records are equal if the tuples of their fields are, in every version of Python: two fields that
    are one object are equal, even a NaN. (Since 3.13, the standard library compares the fields.)
    """

    def made(cls: type) -> Any:
        if hasattr(cls, "__dataclass_fields__"):  # of a base: rare, and with rules of its own
            full = dataclasses.dataclass(init=init, repr=repr, eq=eq, frozen=frozen, slots=slots)
            return full(cls)
        record: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
        fields = dataclasses.fields(record)
        if init:
            _add(record, _init(record, fields, frozen, slots))
        if repr:
            _add(record, _repr([f.name for f in fields if f.repr]))
        if eq:
            _compare(record, [f.name for f in fields if f.compare], frozen)
        if frozen:
            _freeze(record, frozenset(f.name for f in fields), slots)
        options = record.__dataclass_params__
        options.init, options.repr, options.eq, options.frozen = init, repr, eq, frozen
        return record

    return made if cls is None else made(cls)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass


def _add(cls: type, method: Callable[..., Any]) -> None:
    """Add a method, unless the class defines it itself."""
    name = method.__name__
    if name not in vars(cls):
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)


# -- construction ----------------------------------------------------------------------------------


class _NotGiven:
    """The value of a parameter that is not given, where a function makes one for each record."""

    def __repr__(self) -> str:
        return "<factory>"


def _init(
    cls: type, fields: Sequence[Field[Any]], frozen: bool, slots: bool
) -> Callable[..., None]:
    """`__init__`, whose parameters are the fields."""
    given = [f for f in fields if f.init]
    last = [_parameter(f) for f in given if f.kw_only]
    parameters = [_parameter(f) for f in given if not f.kw_only] + ["*"] * bool(last) + last
    lines = [_setting(f, frozen) for f in fields if _is_set(f, slots)]
    lines += ["self.__post_init__()"] * hasattr(cls, "__post_init__")
    names: dict[str, Any] = {"_set": object.__setattr__, "_NOT_GIVEN": _NotGiven()}
    for f in fields:
        names |= {f"_default_{f.name}": f.default, f"_make_{f.name}": f.default_factory}
    text = f"def __init__(self, {', '.join(parameters)}):\n " + "\n ".join(lines or ["pass"])
    method = _compiled("__init__", text, names)
    method.__annotations__ = {f.name: f.type for f in given} | {"return": None}
    return method


def _parameter(field: Field[Any]) -> str:
    """A parameter of `__init__`."""
    if field.default_factory is not MISSING:
        return f"{field.name}=_NOT_GIVEN"
    return field.name if field.default is MISSING else f"{field.name}=_default_{field.name}"


def _is_set(field: Field[Any], slots: bool) -> bool:
    """Whether `__init__` sets a field. A default that nobody can change stays with the class."""
    made = field.default_factory is not MISSING
    return field.init or made or (slots and field.default is not MISSING)


def _setting(field: Field[Any], frozen: bool) -> str:
    """The line of `__init__` that sets a field."""
    name = field.name
    match field.init, field.default_factory is not MISSING:
        case True, True:
            value = f"_make_{name}() if {name} is _NOT_GIVEN else {name}"
        case True, False:
            value = name
        case False, True:
            value = f"_make_{name}()"
        case _:
            value = f"_default_{name}"
    return f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}"


# -- printing and comparison -----------------------------------------------------------------------


def _repr(names: Sequence[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:
        values = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{type(self).__qualname__}({values})"

    return __repr__


def _compare(cls: Any, names: Sequence[str], frozen: bool) -> None:
    """Add `==`, and a hash where records do not change."""
    mine, others = (f"({''.join(f'{x}.{name}, ' for name in names)})" for x in ("self", "other"))
    same = "other.__class__ is self.__class__"
    equal = f"def __eq__(self, other):\n return {mine} == {others} if {same} else NotImplemented"
    if vars(cls).get("__hash__") is None:  # Python sets None where a class defines only __eq__
        text = f"def __hash__(self):\n return hash({mine})"
        cls.__hash__ = _when_called(cls, "__hash__", text) if frozen else None
    _add(cls, _when_called(cls, "__eq__", equal))


def _when_called(cls: type, name: str, text: str) -> Callable[..., Any]:
    """A method that is compiled when it is first called, and then takes this one's place: most
    records are never compared in a first step."""

    def method(*args: Any) -> Any:
        compiled = _compiled(name, text, {})
        setattr(cls, name, compiled)
        return compiled(*args)

    method.__name__ = name
    return method


def _compiled(name: str, text: str, names: dict[str, Any]) -> Callable[..., Any]:
    """A function from its text. names: what it reads"""
    exec(text, names)
    function: Callable[..., Any] = names[name]
    return function


# -- records that do not change --------------------------------------------------------------------


def _freeze(cls: Any, names: frozenset[str], slots: bool) -> None:
    """Let no field be set or deleted. A subclass may have attributes of its own."""

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    def __getstate__(self: Any) -> list[Any]:
        return [getattr(self, f.name) for f in dataclasses.fields(self)]

    def __setstate__(self: Any, state: Sequence[Any]) -> None:
        for f, value in zip(dataclasses.fields(self), state, strict=True):
            object.__setattr__(self, f.name, value)

    _add(cls, __setattr__)
    _add(cls, __delattr__)
    if slots:  # what pickle and copy do without these sets attributes
        _add(cls, __getstate__)
        _add(cls, __setstate__)
