"""`dataclass` as the standard library's, but quick to create and to use.

That one prints and compiles the text of six methods for every class, which would be half of the
time it takes to import graphc. Here a method is printed when it is first called, and most are never
called. A frozen instance with slots is filled by its slots, which takes half as long.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # what it is to a type checker
else:

    def dataclass(cls=None, /, **options):
        """`dataclasses.dataclass`, for frozen, eq, repr and slots."""
        return _made(cls) if cls is not None else lambda kind: _made(kind, **options)


Method: TypeAlias = Callable[..., Any]


def _made(
    kind: type[Any], frozen: bool = False, eq: bool = True, repr: bool = True, slots: bool = False
) -> type[Any]:
    """The class with its fields, and with the methods that it does not define itself."""
    own = kind.__dict__
    hashed = own.get("__hash__") is not None  # a class that defines __eq__ alone has a None there
    cls = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(kind)
    fields = dataclasses.fields(cls)
    make = partial(_init, cls, frozen)
    init = _later(cls, "__init__", make)
    methods: dict[str, Any] = {"__init__": init, "__signature__": _Signature(init, make)}
    if repr:
        methods["__repr__"] = _repr([f.name for f in fields if f.repr])
    if eq:
        compared = [f.name for f in fields if f.compare]
        methods["__eq__"] = _later(cls, "__eq__", partial(_eq, compared))
        if not hashed:
            of_values = _later(cls, "__hash__", partial(_hash, compared))
            setattr(cls, "__hash__", of_values if frozen else None)  # noqa: B010
    if frozen:
        methods |= _frozen(cls, frozenset(f.name for f in fields))
        methods |= {"__getstate__": _getstate, "__setstate__": _setstate} if slots else {}
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    return cls


def _later(cls: type[Any], name: str, make: Callable[[], Method]) -> Method:
    """A method that another one takes the place of, when it is first called."""

    def first(self: Any, *args: Any, **kwargs: Any) -> Any:
        method = make()
        setattr(cls, name, method)
        return method(self, *args, **kwargs)

    return first


def _printed(head: str, body: Iterable[str], **names: Any) -> Method:
    """The method of this text, in which these names are known."""
    name = head.partition("(")[0]
    exec(f"def {head}:\n " + "\n ".join(body), names)
    made: Method = names[name]
    return made


# -- methods -------------------------------------------------------------------------------------


def _repr(names: list[str]) -> Method:
    form = ", ".join(f"{name}=%r" for name in names)
    if len(names) == 1:
        (name,) = names
        return lambda self: f"{type(self).__qualname__}({form % (getattr(self, name),)})"
    values = attrgetter(*names) if names else lambda self: ()
    return lambda self: f"{type(self).__qualname__}({form % values(self)})"


def _eq(names: list[str]) -> Method:
    mine, others = _tuple("self", names), _tuple("other", names)
    return _printed(
        "__eq__(self, other)",
        [
            "if self is other: return True",
            "if other.__class__ is not self.__class__: return NotImplemented",
            f"return {mine} == {others}",
        ],
    )


def _hash(names: list[str]) -> Method:
    return _printed("__hash__(self)", [f"return hash({_tuple('self', names)})"])


def _tuple(of: str, names: list[str]) -> str:
    return f"({''.join(f'{of}.{name}, ' for name in names)})"


def _frozen(cls: type[Any], names: frozenset[str]) -> dict[str, Method]:
    """The methods that let nobody assign to a field, or delete one."""

    def __setattr__(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for f, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)


# -- __init__ ------------------------------------------------------------------------------------


def _init(cls: type[Any], frozen: bool) -> Method:
    """`__init__` of a class."""
    fields = dataclasses.fields(cls)
    names: dict[str, Any] = {"MISSING": dataclasses.MISSING, "_set": object.__setattr__}
    body = [line for f in fields for line in _assigned(cls, f, frozen, names)]
    if getattr(cls, "__post_init__", None) is not None:
        body.append("self.__post_init__()")
    plain = [_parameter(f, names) for f in fields if f.init and not f.kw_only]
    named = [_parameter(f, names) for f in fields if f.init and f.kw_only]
    head = ", ".join(["self", *plain, *(["*"] if named else []), *named])
    made = _printed(f"__init__({head})", body or ["pass"], **names)
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__annotations__ = {f.name: f.type for f in fields if f.init} | {"return": None}
    return made


def _parameter(f: dataclasses.Field[Any], names: dict[str, Any]) -> str:
    if f.default_factory is not dataclasses.MISSING:
        return f"{f.name}=MISSING"
    if f.default is dataclasses.MISSING:
        return f.name
    names[f"_default_{f.name}"] = f.default
    return f"{f.name}=_default_{f.name}"


def _assigned(
    cls: type[Any], f: dataclasses.Field[Any], frozen: bool, names: dict[str, Any]
) -> list[str]:
    """The lines that set a field: past `__setattr__` where that lets nobody do it."""
    value, slot = f.name, inspect.getattr_static(cls, f.name, None)
    if f.default_factory is not dataclasses.MISSING:
        names[f"_new_{f.name}"] = f.default_factory
        value = f"_new_{f.name}()" + (f" if {f.name} is MISSING else {f.name}" if f.init else "")
    elif not f.init:
        return []
    if not frozen:
        return [f"self.{f.name} = {value}"]
    if not isinstance(slot, MemberDescriptorType):
        return [f"_set(self, {f.name!r}, {value})"]
    names[f"_set_{f.name}"] = slot.__set__
    return [f"_set_{f.name}(self, {value})"]


class _Signature:
    """`__signature__` of a class: that of its `__init__`."""

    def __init__(self, first: Method, make: Callable[[], Method]) -> None:
        self.first, self.make = first, make

    def __get__(self, instance: object, cls: type[Any]) -> inspect.Signature:
        if instance is not None:
            raise AttributeError("__signature__")
        init: Method = cls.__init__
        found = inspect.signature(self.make() if init is self.first else init)
        return found.replace(parameters=list(found.parameters.values())[1:])
