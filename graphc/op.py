"""What an op is: one definition that holds all that is known of it.

An op is a final frozen dataclass: its fields are its attributes. Around them stand, together, the
type rule (`infer`), the dims rule (`dims`), the gradient (`grad`), the reference kernel (`run`) and
the samples from which every contract test is generated. Passes ask for traits, never for names.

The dims rule is an einsum-like string over letters, one per dim: `m k, k n -> m n`.
A letter on both sides is mapped, one only on the left is reduced (`reduces` says how), one only on
the right is new. `k!` is whole: it can't be split. `v?` is looked up by an index: an operand cut
along it gives a partial sum, a result cut along it takes what falls into its part. `(a b)` is a
group of factors of one dim; only the first of them, the major one, can be split.
"""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, dataclass_transform

from graphc.errors import GraphcError, did_you_mean
from graphc.placement import Partial, R, ReduceOp, Split, State
from graphc.types import Extent, Extents, TensorType, Type

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphc.layout import Layout

    Array = NDArray[Any]

    class Value(Protocol):
        """A node under construction, as a gradient rule sees it: typed, with NumPy's operators."""

        @property
        def type(self) -> TensorType: ...
        @property
        def shape(self) -> tuple[int, ...]: ...
        def __add__(self, other: Any) -> Value: ...
        def __radd__(self, other: Any) -> Value: ...
        def __sub__(self, other: Any) -> Value: ...
        def __rsub__(self, other: Any) -> Value: ...
        def __mul__(self, other: Any) -> Value: ...
        def __rmul__(self, other: Any) -> Value: ...
        def __truediv__(self, other: Any) -> Value: ...
        def __rtruediv__(self, other: Any) -> Value: ...
        def __pow__(self, other: Any) -> Value: ...
        def __neg__(self) -> Value: ...

    class Functions(Protocol):
        """`f.name(*operands, **attributes)` builds a node of the op (or composite) `name`."""

        def __getattr__(self, name: str) -> Callable[..., Value]: ...

    Gradients = tuple[Value | None, ...]


@dataclass(frozen=True, slots=True)
class Shard:
    """Where a piece of a tensor lies: what a kernel needs that depends on the global position.

    shape:   the padded local shape of the result
    offsets: global index of the first entry, per dim of the *positioned* tensor (see `positioned`)
    lengths: number of valid entries, per dim of that tensor
    sizes:   number of valid entries of the whole tensor, per dim; () where it is not known
    """

    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    lengths: tuple[int, ...]
    sizes: tuple[int, ...] = ()


class Op(ABC):
    """An operation. Subclasses are final, registered by `@register`, and pure functions."""

    name: ClassVar[str] = ""
    elementwise: ClassVar[bool] = False  # operands and result of one shape, entry by entry
    commutative: ClassVar[bool] = False
    linear: ClassVar[tuple[tuple[int, ...], ...]] = ()  # sets of operands that may be partial
    jointly_linear: ClassVar[bool] = False  # all operands may be partial together
    reduces: ClassVar[ReduceOp] = "sum"  # how letters that vanish are combined
    lazy: ClassVar[bool] = False  # cheap to make anew wherever and however it is needed
    view: ClassVar[bool] = False  # the result may share the first operand's memory (`layout`)
    in_place: ClassVar[bool] = False  # the kernel may write over an operand of the result's type
    source: ClassVar[str] = ""  # 'input' or 'variable' for a value that comes from outside
    conversion: ClassVar[bool] = False  # changes the placement only, never the global value
    aggregates: ClassVar[bool] = False  # the sum of contributions to one gradient
    count: ClassVar[bool] = False  # a run-time number of examples: a denominator
    denominator: ClassVar[int | None] = None  # the operand that divides, for a quotient
    identity: ClassVar[float | None] = None  # op(x, identity) is x
    involution: ClassVar[bool] = False  # op(op(x)) is x
    floats: ClassVar[bool] = False  # integer operands are cast to f32 first
    positioned: ClassVar[int | None] = None  # tensor whose global offset the kernel needs:
    #                                          an operand's slot, or -1 for the result
    indices: ClassVar[tuple[int, ...]] = ()  # operands whose entries must be valid indices
    not_differentiable: ClassVar[str] = ""  # the reason, where there is no gradient
    domain: ClassVar[tuple[float, float]] = (-2.0, 2.0)  # sample values are drawn from here

    @abstractmethod
    def infer(self, *types: TensorType) -> TensorType:
        """The type of the result, without extents and placement. Raises G02xx."""

    @abstractmethod
    def dims(self, *types: TensorType) -> str:
        """The dims rule for operands of these types."""

    @abstractmethod
    def run(self, *xs: Array) -> Array:
        """The reference kernel: NumPy arrays in, a new NumPy array out."""

    def run_shard(self, shard: Shard, *xs: Array) -> Array:
        """The kernel on one shard, for an op whose result depends on the global position."""
        return self.run(*xs)

    def grad(self, f: Functions, g: Value, y: Value, *xs: Value) -> Gradients:
        """The contribution to each operand's gradient, given that of the result (None: none)."""
        raise AssertionError(f"{self.name} is not differentiable: {self.not_differentiable}")

    def localize(self, shape: tuple[int, ...]) -> Op:
        """The op as a rank runs it, when the local result has `shape`."""
        return self

    def layout(self, x: Layout) -> Layout | None:
        """Where a view lies, when its operand lies so; None where the entries must be moved."""
        return None

    def merge(self, inner: Op) -> Op | None:
        """The one op that does `inner` and then this one, or None where there is none."""
        return None

    @property
    def new_extents(self) -> Extents:
        """Extents of the dims that the op makes anew, per dim of the result; () for none."""
        return ()

    @classmethod
    @abstractmethod
    def samples(cls) -> Sequence[tuple[Op, str]]:
        """(op, operand types) pairs such as `(cls(dim=0), "f32[2,3]")`, to generate tests from."""

    def bounds(self, slot: int, types: Sequence[TensorType]) -> tuple[float, float]:
        """The range that sample values of an operand are drawn from."""
        return self.domain

    @property
    def attributes(self) -> dict[str, Any]:
        """Attribute values by name, in the order of their fields."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]


_OPS: dict[str, type[Op]] = {}
T = TypeVar("T", bound=type[Op])


def snake(name: str) -> str:
    """ReduceSum -> reduce_sum"""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


@dataclass_transform(frozen_default=True)
def register(cls: T) -> T:
    """Make `cls` a frozen dataclass and an op known by its name in snake case."""
    made: T = dataclass(frozen=True)(cls)  # type: ignore[assignment]
    made.name = made.name or snake(cls.__name__)
    assert made.__doc__, f"op {made.name} has no docstring"
    assert made.not_differentiable or "grad" in vars(cls), (
        f"op {made.name} must define grad or say why it is not differentiable"
    )
    other = _OPS.get(made.name)
    assert other is None, f"op {made.name} is defined in {made.__module__} and {other}"
    _OPS[made.name] = made
    return made


def op_named(name: str) -> type[Op]:
    """The op of that name. Raises G0206."""
    if name not in _OPS:
        raise GraphcError("G0206", f"there is no op '{name}'", help=did_you_mean(name, tuple(_OPS)))
    return _OPS[name]


def all_ops() -> dict[str, type[Op]]:
    """Every registered op by name."""
    return dict(sorted(_OPS.items()))


_RECORDS: dict[str, type] = {}
C = TypeVar("C", bound=type)


def record(cls: C) -> C:
    """Let a frozen dataclass stand in the text of a graph, as `name(field=value, ...)`."""
    _RECORDS[snake(cls.__name__)] = cls
    return cls


def record_named(name: str) -> type | None:
    """The record class of that name, or None."""
    return _RECORDS.get(name)


def record_names() -> list[str]:
    """The names of all records."""
    return sorted(_RECORDS)


def require(condition: bool, message: str, *, code: str = "G0203", help: str | None = None) -> None:
    """Raise a GraphcError of `code` unless the condition holds."""
    if not condition:
        raise GraphcError(code, message, help=help)


# -- dims rules ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dim:
    """One dim in a rule: its letters, major first; whole: not splittable; index: looked up."""

    letters: tuple[str, ...]
    whole: bool = False
    index: bool = False


@dataclass(frozen=True, slots=True)
class DimsRule:
    """A parsed dims rule: the dims of each operand, and of the result."""

    operands: tuple[tuple[Dim, ...], ...]
    result: tuple[Dim, ...]

    def places(self, letter: str) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
        """The dims that a letter leads: per operand, and in the result."""
        at = tuple(_led_by(dims, letter) for dims in self.operands)
        return at, _led_by(self.result, letter)


@dataclass(frozen=True, slots=True)
class Signature:
    """One way for an op to run along a mesh axis: states of the operands, state of the result.

    letter is the letter that is split, '' for the replicated way and for partial operands.
    """

    operands: tuple[State, ...]
    result: State
    letter: str = ""


def _led_by(dims: tuple[Dim, ...], letter: str) -> tuple[int, ...]:
    return tuple(i for i, d in enumerate(dims) if d.letters and d.letters[0] == letter)


_TOKEN = re.compile(r"\(([^)]*)\)|(\w+)([!?]?)")


@lru_cache(maxsize=4096)
def parse_rule(text: str) -> DimsRule:
    """Parse `m k, k n -> m n`."""
    left, right = text.split("->")
    operands = tuple(_parse_dims(part) for part in left.split(",")) if left.strip() else ()
    return DimsRule(operands, _parse_dims(right))


def _parse_dims(text: str) -> tuple[Dim, ...]:
    return tuple(
        Dim(tuple(group.split())) if not letter else Dim((letter,), mark == "!", mark == "?")
        for group, letter, mark in _TOKEN.findall(text)
    )


@lru_cache(maxsize=256)
def letters(n: int) -> str:
    """n letters in a row: `a0 a1 a2`; a scalar is `.`."""
    return " ".join(f"a{i}" for i in range(n)) or "."


@lru_cache(maxsize=256)
def map_rule(rank: int, operands: int) -> str:
    """The rule of an elementwise op."""
    return ", ".join([letters(rank)] * operands) + " -> " + letters(rank)


@lru_cache(maxsize=16384)
def signatures(rule: DimsRule, op_class: type[Op], operands: int) -> tuple[Signature, ...]:
    """Every way that an op of this class may run along one mesh axis.

    The replicated way comes first. A group's factors other than the first, whole dims, and a
    letter that appears twice in one tensor give none.
    """
    ways = [Signature((R,) * operands, R)]
    ways += [
        way for letter in _splittable(rule) if (way := _split_way(rule, letter, op_class.reduces))
    ]
    sets = op_class.linear + ((tuple(range(operands)),) if op_class.jointly_linear else ())
    for partial in dict.fromkeys(sets):
        states = tuple(Partial() if i in partial else R for i in range(operands))
        ways.append(Signature(states, Partial()))
    return tuple(ways)


def _splittable(rule: DimsRule) -> list[str]:
    everywhere = [*rule.operands, rule.result]
    minor = {x for dims in everywhere for d in dims for x in d.letters[1:]}
    whole = {x for dims in everywhere for d in dims if d.whole for x in d.letters}
    seen = dict.fromkeys(d.letters[0] for dims in everywhere for d in dims if d.letters)
    return [x for x in seen if x not in minor and x not in whole]


def _split_way(rule: DimsRule, letter: str, reduces: ReduceOp) -> Signature | None:
    at, out = rule.places(letter)
    if any(len(p) > 1 for p in (*at, out)):
        return None
    states = tuple(Split(p[0]) if p else R for p in at)
    return Signature(states, Split(out[0]) if out else Partial(reduces), letter)


def reduced_dims(rule: DimsRule) -> list[tuple[int, int]]:
    """(operand, dim) of every dim whose entries are combined: padding there must be masked."""
    kept = {x for d in rule.result for x in d.letters}
    return [
        (slot, i)
        for slot, dims in enumerate(rule.operands)
        for i, d in enumerate(dims)
        if not d.index and d.letters and not kept.intersection(d.letters)
    ]


# -- extents ------------------------------------------------------------------------------------


def result_extents(op: Op, rule: DimsRule, types: Sequence[TensorType]) -> Extents:
    """The extents of the result: a letter carries its extent from operand to result."""
    if not op.new_extents and not any(t.extents for t in types):
        return ()
    sizes, found = _letter_extents(rule, types)
    new = op.new_extents or (None,) * len(rule.result)
    return tuple(new[i] or _group_extent(dim, sizes, found) for i, dim in enumerate(rule.result))


def _letter_extents(
    rule: DimsRule, types: Sequence[TensorType]
) -> tuple[dict[str, int], dict[str, Extent]]:
    sizes: dict[str, int] = {}
    found: dict[str, Extent] = {}
    for dims, t in zip(rule.operands, types, strict=True):
        for i, dim in enumerate(dims):
            if len(dim.letters) == 1:
                sizes.setdefault(dim.letters[0], t.shape[i])
    _sizes_of_groups(rule, types, sizes)
    for dims, t in zip(rule.operands, types, strict=True):
        for i, dim in enumerate(dims):
            extent = t.extent(i)
            if extent is None or dim.whole or dim.index or not dim.letters:
                continue
            minor = 1
            for x in dim.letters[1:]:
                minor *= sizes[x]
            if minor and extent.unit % minor == 0:
                _agree(found, dim.letters[0], Extent(extent.name, extent.unit // minor))
    return sizes, found


def _sizes_of_groups(rule: DimsRule, types: Sequence[TensorType], sizes: dict[str, int]) -> None:
    # A reshape's rule spells sizes in its letters (`x3_16` is a factor of 16), since a group's
    # factors can't be read off the operand's shape.
    for dims in (*rule.operands, rule.result):
        for dim in dims:
            for x in dim.letters:
                if "_" in x:
                    sizes.setdefault(x, int(x.rsplit("_", 1)[1]))


def _agree(found: dict[str, Extent], letter: str, extent: Extent) -> None:
    other = found.setdefault(letter, extent)
    if other != extent:
        raise GraphcError(
            "G0207",
            f"one dim is called '{other}' in one operand and '{extent}' in another",
            help="give both the same name in the inputs' types",
        )


def _group_extent(dim: Dim, sizes: dict[str, int], found: dict[str, Extent]) -> Extent | None:
    if dim.whole or not dim.letters or dim.letters[0] not in found:
        return None
    extent = found[dim.letters[0]]
    unit = extent.unit
    for x in dim.letters[1:]:
        unit *= sizes[x]
    return Extent(extent.name, unit)


def lost_extents(rule: DimsRule, types: Sequence[TensorType], result: TensorType) -> bool:
    """Whether a dim of run-time length ends in a place that needs it whole.

    Such a program cannot run a padded batch: it is compiled for the exact size instead.
    """
    kept = {x for d in rule.result for x in d.letters}
    carried = {d.letters[0] for i, d in enumerate(rule.result) if d.letters and result.extent(i)}
    for dims, t in zip(rule.operands, types, strict=True):
        for i, dim in enumerate(dims):
            if t.extent(i) is None:
                continue
            if (
                dim.whole
                or dim.index
                or (set(dim.letters) & kept and dim.letters[0] not in carried)
            ):
                return True
    return False


def tensor_types(types: Iterable[Type]) -> tuple[TensorType, ...]:
    """The types, all of which must be tensors."""
    result = tuple(types)
    for t in result:
        if not isinstance(t, TensorType):  # no require: its message would be made for every type
            raise GraphcError("G0202", f"a tensor is needed here, not {t}")
    return result  # type: ignore[return-value]
