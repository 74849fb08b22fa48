"""Frozen records to plain JSON values and back, by their fields' annotations.

    dataclass          {field: value, ...}, without the fields that have their default
    one of several     the same with "is": the class's name
    Op                 {"@": name, field: value, ...}
    DType              its name                              tuple, list     [...]
    NaN, infinity      {"float": "nan"}                      dict[str, T]    {...}

Reading builds nothing but what the annotations say: a value that does not fit raises `Misfit`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from graphc.op import Op, op_named
from graphc.types import DTYPES, DType

T = TypeVar("T")


class Misfit(ValueError):
    """A JSON value that is not what the field must hold."""


# -- writing -------------------------------------------------------------------------------------


def encode(value: Any) -> Any:
    """The JSON value of a record, or of a tuple, dict, number, string."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"float": str(value)}
        case DType():
            return value.name
        case tuple() | list():
            return [encode(x) for x in value]
        case Op():
            return {"@": value.name} | _fields(value)  # a field may be called `op`
        case Mapping():
            return {str(k): encode(x) for k, x in value.items()}
        case _ if dataclasses.is_dataclass(value):
            return {"is": type(value).__name__} | _fields(value)
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON form")


def _fields(record: Any) -> dict[str, Any]:
    found = {}
    for f in dataclasses.fields(record):
        value = getattr(record, f.name)
        if f.default is dataclasses.MISSING or (value is not f.default and value != f.default):
            found[f.name] = encode(value)
    return found


# -- reading -------------------------------------------------------------------------------------


def decode(kind: type[T], value: Any) -> T:
    """The record of type `kind` that a JSON value stands for. Raises Misfit."""
    return cast(T, _decode(kind, value))


def _decode(kind: Any, value: Any) -> Any:
    origin = get_origin(kind)
    if kind is Any:
        return _plain(value)
    if kind in (bool, int, str, NoneType):
        return _exactly(kind, value)
    if kind is float:
        return _float(value)
    if kind is DType:
        if not isinstance(value, str) or value not in DTYPES:
            raise Misfit(f"{_short(value)} is no dtype")
        return DTYPES[value]
    if origin in (Union, UnionType):
        return _one_of(get_args(kind), value)
    if origin is Literal:
        if value not in get_args(kind):
            raise Misfit(f"{_short(value)} is none of {get_args(kind)}")
        return value
    if origin is tuple:
        return _tuple(get_args(kind), value)
    if origin in (dict, Mapping):
        item = get_args(kind)[1]
        return {k: _decode(item, x) for k, x in _exactly(dict, value).items()}
    if isinstance(kind, type) and issubclass(kind, Op):
        return _op(value)
    return _record(kind, value)


def _exactly(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise Misfit(f"{_short(value)} is no {kind.__name__}")
    return value


def _float(value: Any) -> float:
    match value:
        case {"float": ("nan" | "inf" | "-inf") as word}:
            return float(word)
        case float():
            return value
        case int() if not isinstance(value, bool):
            return value  # a float field may hold an integer; it stays one
        case _:
            raise Misfit(f"{_short(value)} is no float")


def _tuple(kinds: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    items = _exactly(list, value)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_decode(kinds[0], x) for x in items)
    if len(items) != len(kinds):
        raise Misfit(f"{_short(value)} has not {len(kinds)} parts")
    return tuple(_decode(k, x) for k, x in zip(kinds, items, strict=True))


def _one_of(kinds: tuple[Any, ...], value: Any) -> Any:
    if isinstance(value, dict) and "is" in value:
        for kind in kinds:
            if isinstance(kind, type) and kind.__name__ == value["is"]:
                return _record(kind, value)
        raise Misfit(f"{_short(value['is'])} is none of the classes that may stand here")
    for kind in kinds:
        if kind in (bool, int, str, NoneType) and type(value) is kind:
            return value
    for kind in kinds:
        if kind not in (bool, int, str, NoneType):
            try:
                return _decode(kind, value)
            except Misfit:
                continue
    raise Misfit(f"{_short(value)} does not fit")


def _op(value: Any) -> Op:
    given = dict(_exactly(dict, value))
    cls = op_named(_exactly(str, given.pop("@", None)))
    return cast(Op, _made(cls, given))


def _record(kind: Any, value: Any) -> Any:
    given = dict(_exactly(dict, value))
    name = given.pop("is", None)
    if not dataclasses.is_dataclass(kind) or name != cast(type, kind).__name__:
        raise Misfit(f"{_short(name)} where {getattr(kind, '__name__', kind)} must stand")
    return _made(kind, given)


def _made(cls: Any, given: dict[str, Any]) -> Any:
    hints = _hints(cls)
    unknown = set(given) - set(hints)
    if unknown:
        raise Misfit(f"{cls.__name__} has no field {_short(min(unknown))}")
    values = {}
    for name, x in given.items():
        try:
            values[name] = _decode(hints[name], x)
        except Misfit as misfit:
            raise Misfit(f"{cls.__name__}.{name}: {misfit}") from None
    missing = [f.name for f in dataclasses.fields(cls) if _required(f) and f.name not in values]
    if missing:
        raise Misfit(f"{cls.__name__} lacks field {missing[0]}")
    return cls(**values)


def _required(field: dataclasses.Field[Any]) -> bool:
    none = dataclasses.MISSING
    return field.default is none and field.default_factory is none


@lru_cache(maxsize=1024)
def _hints(cls: type) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls)}


def _plain(value: Any) -> Any:
    match value:
        case {"float": str()} if len(value) == 1:
            return _float(value)
        case dict():
            return {k: _plain(x) for k, x in value.items()}
        case list():
            return [_plain(x) for x in value]
        case _:
            return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
