"""The syntax tree of a .gc file: frozen nodes, each with the span it was read from.

Two nodes are equal when they say the same; spans and the spelling of numbers do not count. Runs
of operators of one precedence are flat (`Chain`), so that a sum of 10^5 terms is not 10^5 deep;
what is left of depth is bounded by `graphc.frontend.check`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from graphc.errors import Span


@dataclass(frozen=True, slots=True)
class Node:
    """What all nodes have: the place in the source. A block's statement has its header's place."""

    span: Span = field(kw_only=True, compare=False, repr=False)


# -- expressions -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Name(Node):
    """`relu`: a name to look up, or one that is defined here."""

    id: str


@dataclass(frozen=True, slots=True)
class Attribute(Node):
    """`nn.dense`: a member of an imported file, or of a dotted variable name."""

    value: Expr
    name: str


@dataclass(frozen=True, slots=True)
class Int(Node):
    value: int


@dataclass(frozen=True, slots=True)
class Float(Node):
    value: float


@dataclass(frozen=True, slots=True)
class Str(Node):
    value: str


@dataclass(frozen=True, slots=True)
class Bool(Node):
    value: bool


@dataclass(frozen=True, slots=True)
class Null(Node):
    """`none`: no value; in an index, a new dim of size 1."""


@dataclass(frozen=True, slots=True)
class List(Node):
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Tuple(Node):
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Entry(Node):
    key: Expr
    value: Expr


@dataclass(frozen=True, slots=True)
class Map(Node):
    """`{"w*": 1}`."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Unary(Node):
    op: Literal["-", "not"]
    operand: Expr


@dataclass(frozen=True, slots=True)
class Power(Node):
    """`base ** exponent`, which groups to the right."""

    base: Expr
    exponent: Expr


@dataclass(frozen=True, slots=True)
class Link(Node):
    """One step of a chain. Its span runs from the chain's first operand to this one."""

    op: str
    operand: Expr


@dataclass(frozen=True, slots=True)
class Chain(Node):
    """`first op operand op operand ...`: one precedence, grouped to the left, evaluated in order.

    The ops of one chain come from one of these sets: `or`; `and`; one comparison; `+ -`;
    `* / // % @`.
    """

    first: Expr
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Conditional(Node):
    """`then if condition else otherwise`; the condition is known at compile time."""

    then: Expr
    condition: Expr
    otherwise: Expr


@dataclass(frozen=True, slots=True)
class Argument(Node):
    """One argument of a call, or one option of a variable; name is None for a positional one."""

    name: str | None
    value: Expr


@dataclass(frozen=True, slots=True)
class Call(Node):
    function: Expr
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Slice(Node):
    start: Expr | None
    stop: Expr | None
    step: Expr | None


@dataclass(frozen=True, slots=True)
class Dots(Node):
    """`...` in an index: all the dims between."""


@dataclass(frozen=True, slots=True)
class Index(Node):
    """`value[items]`; `x[a, b]` has two items, `x[(a, b)]` one."""

    value: Expr
    items: tuple[Expr | Slice | Dots, ...]


Expr: TypeAlias = (
    Name | Attribute | Int | Float | Str | Bool | Null | List | Tuple | Map
    | Unary | Power | Chain | Conditional | Call | Index
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TypeExpr(Node):
    """`f32[batch, 4 * d]`; the dtype's name is known to be one. A scalar has no dims."""

    dtype: str
    dims: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class StrategyExpr(Node):
    """`mirrored(4) * accumulate(2)`: factors from left to right, the leftmost major.

    A factor is a call of a strategy, or a name: a strategy without arguments, or one that the
    file defines.
    """

    factors: tuple[Name | Call, ...]


# -- statements of a step ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Variable(Node):
    """`param w: f32[64] = zeros() { decay=false }`; `state` is the same but not trained."""

    kind: Literal["param", "state"]
    target: Expr
    type: TypeExpr
    initial: Expr
    options: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Assign(Node):
    """`a, b = value`; with several targets the value is taken apart."""

    targets: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Update(Node):
    """`m <- value`: the state's value after this step."""

    target: Expr
    value: Expr


@dataclass(frozen=True, slots=True)
class For(Node):
    """A static loop: unrolled when the graph is built."""

    targets: tuple[Name, ...]
    items: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Branch(Node):
    condition: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class If(Node):
    """`if ... else if ... else ...`: the conditions are known at compile time."""

    branches: tuple[Branch, ...]
    otherwise: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Minimize(Node):
    """`minimize loss with clip(1.0) | adam(1e-3) over {w, "enc.*"}`; over None: every param."""

    loss: Expr
    chain: tuple[Expr, ...]
    over: tuple[Expr, ...] | None


@dataclass(frozen=True, slots=True)
class Report(Node):
    name: Name
    value: Expr


@dataclass(frozen=True, slots=True)
class Return(Node):
    value: Expr


# -- statements of a file ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Import(Node):
    """`import "layers.gc" as nn`; without a name the file's definitions are taken over."""

    path: Str
    alias: Name | None


@dataclass(frozen=True, slots=True)
class Const(Node):
    name: Name
    value: Expr


@dataclass(frozen=True, slots=True)
class Parameter(Node):
    name: Name
    default: Expr | None


@dataclass(frozen=True, slots=True)
class Function(Node):
    """Either form of `fn`; `fn f(x) = e` has the body `return e`."""

    name: Name
    parameters: tuple[Parameter, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Input(Node):
    name: Name
    type: TypeExpr


@dataclass(frozen=True, slots=True)
class Step(Node):
    name: Name
    inputs: tuple[Input, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Data(Node):
    """`data train = npz("x.npz", batch=256, shuffle(seed=0))`."""

    name: Name
    source: Call


@dataclass(frozen=True, slots=True)
class Train(Node):
    """`train for 60 epochs`."""

    count: Expr
    unit: Literal["epochs", "steps"]


@dataclass(frozen=True, slots=True)
class Strategy(Node):
    name: Name
    value: StrategyExpr


Statement: TypeAlias = (
    Import | Const | Function | Step | Data | Train | Strategy
    | Variable | Assign | Update | For | If | Minimize | Report | Return
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comment(Node):
    """`# text`, with its sign; trailing: something stands before it on its line."""

    text: str
    trailing: bool


@dataclass(frozen=True, slots=True)
class Module(Node):
    """A file. Comments do not count in comparisons."""

    items: tuple[Statement, ...]
    comments: tuple[Comment, ...] = field(default=(), compare=False, repr=False)


# -- walks -----------------------------------------------------------------------------------------


def children(node: Node) -> Iterator[Node]:
    """The nodes directly below `node`, in the order of the source but for `Conditional`'s."""
    for name in node.__dataclass_fields__:
        match None if name in ("span", "comments") else getattr(node, name):
            case Node() as child:
                yield child
            case tuple() as several:
                yield from several
            case _:
                pass


def walk(node: Node) -> Iterator[Node]:
    """`node` and all below it, parents first. Iterative."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack += reversed(list(children(node)))


def is_target(expr: Expr) -> bool:
    """Whether `expr` can be declared or assigned: `w`, `w[i]`, `enc.w`, `layers[i].w`."""
    while True:
        match expr:
            case Name():
                return True
            case Attribute(value):
                expr = value
            case Index(value, items) if not any(isinstance(i, Slice | Dots) for i in items):
                expr = value
            case _:
                return False
