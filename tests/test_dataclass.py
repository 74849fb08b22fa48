"""Records with methods that are printed when they are first called: as the standard library's."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from functools import cached_property
from typing import Any

import pytest

from graphc.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """Two numbers, and what is not compared."""

    x: int
    y: int = 2
    note: str = dataclasses.field(default="", compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class Named:
    """Without slots."""

    names: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        if "" in self.names:
            raise ValueError("a name is empty")

    @cached_property
    def first(self) -> str:
        return self.names[0]


@dataclass
class Count:
    """That can be changed."""

    start: int
    now: int = dataclasses.field(init=False)


@dataclass(frozen=True)
class Shape:
    """One that others inherit from."""

    sides: int


@dataclass(frozen=True)
class Square(Shape):
    """With a field more."""

    width: float = 1.0


@dataclass(frozen=True, eq=False)
class Same:
    """Equal to nothing but itself."""

    x: int


@dataclass(frozen=True)
class Odd:
    """That says itself what is equal."""

    x: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Odd) and self.x % 2 == other.x % 2

    def __hash__(self) -> int:
        return self.x % 2


def test_values_are_given_by_place_and_by_name_or_are_the_defaults() -> None:
    assert (Point(1).x, Point(1).y, Point(1, y=3).y, Point(1, note="a").note) == (1, 2, 3, "a")
    assert Named().names == [] and Named().names is not Named().names
    assert Square(4) == Square(sides=4, width=1.0)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: Point(), "missing 1 required positional argument: 'x'"),
        (lambda: Point(1, 2, 3), "takes from 2 to 3 positional arguments but 4"),
        (lambda: Point(1, z=3), "unexpected keyword argument 'z'"),
    ],
)
def test_what_does_not_fit_the_fields_is_an_error(call: Any, match: str) -> None:
    with pytest.raises(TypeError, match=match):
        call()


def test_the_check_after_the_fields_are_set_is_made() -> None:
    with pytest.raises(ValueError, match="a name is empty"):
        Named([""])


def test_instances_of_one_class_with_equal_values_are_equal_and_hash_alike() -> None:
    assert Point(1) == Point(1, 2) and hash(Point(1)) == hash(Point(1, 2))
    assert Point(1) != Point(2) and Point(1) != (1, 2)
    assert Point(1, note="a") == Point(1, note="b")
    assert Shape(4) != Square(4)
    nan = float("nan")
    assert Square(4, nan) == Square(4, nan) and Square(4, nan) != Square(4, -nan)


def test_what_a_class_says_of_equality_is_kept() -> None:
    same = Same(1)
    assert same == same and same != Same(1) and hash(same) == object.__hash__(same)
    assert Odd(1) == Odd(3) and hash(Odd(1)) == hash(Odd(3))


def test_what_can_be_changed_has_no_hash() -> None:
    count = Count(1)
    count.now = 2
    assert count == count and count.now == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(count)


@pytest.mark.parametrize("record", [Point(1), Named(["a"]), Square(4)])
def test_what_is_frozen_can_not_be_changed(record: Any) -> None:
    name = dataclasses.fields(record)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
        setattr(record, name, 3)
    with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot delete field '{name}'"):
        delattr(record, name)


def test_what_is_computed_once_may_be_kept_in_a_frozen_one() -> None:
    named = Named(["a"])
    assert named.first == "a" and vars(named)["first"] == "a"


def test_a_record_prints_its_values() -> None:
    assert repr(Point(1, note="a")) == "Point(x=1, y=2)"
    assert repr(Named(["%s"])) == "Named(names=['%s'])"


def test_functions_of_dataclasses_take_them() -> None:
    assert dataclasses.replace(Point(1), y=5) == Point(1, 5)
    assert dataclasses.asdict(Square(4)) == {"sides": 4, "width": 1.0}
    assert copy.deepcopy(Point(1, 3)) == pickle.loads(pickle.dumps(Point(1, 3))) == Point(1, 3)
    match Point(1, 7):
        case Point(x, y):
            assert (x, y) == (1, 7)


def test_the_signature_is_that_of_the_fields() -> None:
    @dataclass(frozen=True)
    class Fresh:
        """Never made."""

        x: int
        y: str = "a"

    assert str(inspect.signature(Fresh)) == "(x: 'int', y: 'str' = 'a') -> None"
    assert str(inspect.signature(Point)) == "(x: 'int', y: 'int' = 2, *, note: 'str' = '') -> None"
