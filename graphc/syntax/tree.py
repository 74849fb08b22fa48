"""The syntax tree of a .gc file: frozen nodes, each with the span it was read from.

Two nodes are equal when they say the same; spans and the spelling of numbers do not count. Runs
of operators of one precedence are flat (`Chain`), so that a sum of 10^5 terms is not 10^5 deep;
what is left of depth is bounded by `graphc.syntax.check`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from graphc.syntax.node import Node as Node
from graphc.syntax.node import children as children
from graphc.syntax.node import node
from graphc.syntax.node import walk as walk

# -- expressions -------------------------------------------------------------------------------


@node
class Name(Node):
    """`relu`: a name to look up, or one that is defined here."""

    id: str


@node
class Attribute(Node):
    """`nn.dense`: a member of an imported file, or of a dotted variable name."""

    value: Expr
    name: str


@node
class Int(Node):
    value: int


@node
class Float(Node):
    value: float


@node
class Str(Node):
    value: str


@node
class Bool(Node):
    value: bool


@node
class Null(Node):
    """`none`: no value; in an index, a new dim of size 1."""


@node
class List(Node):
    items: tuple[Expr, ...]


@node
class Tuple(Node):
    items: tuple[Expr, ...]


@node
class Entry(Node):
    key: Expr
    value: Expr


@node
class Map(Node):
    """`{"w*": 1}`."""

    entries: tuple[Entry, ...]


@node
class Unary(Node):
    op: Literal["-", "not"]
    operand: Expr


@node
class Power(Node):
    """`base ** exponent`, which groups to the right."""

    base: Expr
    exponent: Expr


@node
class Link(Node):
    """One step of a chain. Its span runs from the chain's first operand to this one."""

    op: str
    operand: Expr


@node
class Chain(Node):
    """`first op operand op operand ...`: one precedence, grouped to the left, evaluated in order.

    The ops of one chain come from one of these sets: `or`; `and`; one comparison; `+ -`;
    `* / // % @`.
    """

    first: Expr
    links: tuple[Link, ...]


@node
class Conditional(Node):
    """`then if condition else otherwise`; the condition is known at compile time."""

    then: Expr
    condition: Expr
    otherwise: Expr


@node
class Argument(Node):
    """One argument of a call, or one option of a variable; name is None for a positional one."""

    name: str | None
    value: Expr


@node
class Call(Node):
    function: Expr
    arguments: tuple[Argument, ...]


@node
class Slice(Node):
    start: Expr | None
    stop: Expr | None
    step: Expr | None


@node
class Dots(Node):
    """`...` in an index: all the dims between."""


@node
class Index(Node):
    """`value[items]`; `x[a, b]` has two items, `x[(a, b)]` one."""

    value: Expr
    items: tuple[Expr | Slice | Dots, ...]


Expr: TypeAlias = (
    Name | Attribute | Int | Float | Str | Bool | Null | List | Tuple | Map
    | Unary | Power | Chain | Conditional | Call | Index
)  # fmt: skip


@node
class TypeExpr(Node):
    """`f32[batch, 4 * d]`; the dtype's name is known to be one. A scalar has no dims."""

    dtype: str
    dims: tuple[Expr, ...]


@node
class StrategyExpr(Node):
    """`mirrored(4) * accumulate(2)`: factors from left to right, the leftmost major.

    A factor is a call of a strategy, or a name: a strategy without arguments, or one that the
    file defines.
    """

    factors: tuple[Name | Call, ...]


# -- statements of a step ------------------------------------------------------------------------


@node
class Variable(Node):
    """`param w: f32[64] = zeros() { decay=false }`; `state` is the same but not trained."""

    kind: Literal["param", "state"]
    target: Expr
    type: TypeExpr
    initial: Expr
    options: tuple[Argument, ...]


@node
class Assign(Node):
    """`a, b = value`; with several targets the value is taken apart."""

    targets: tuple[Expr, ...]
    value: Expr


@node
class Update(Node):
    """`m <- value`: the state's value after this step."""

    target: Expr
    value: Expr


@node
class For(Node):
    """A static loop: unrolled when the graph is built."""

    targets: tuple[Name, ...]
    items: Expr
    body: tuple[Statement, ...]


@node
class Branch(Node):
    condition: Expr
    body: tuple[Statement, ...]


@node
class If(Node):
    """`if ... else if ... else ...`: the conditions are known at compile time."""

    branches: tuple[Branch, ...]
    otherwise: tuple[Statement, ...]


@node
class Minimize(Node):
    """`minimize loss with clip(1.0) | adam(1e-3) over {w, "enc.*"} order tree reduction mean`

    over None: every param. settings: `order`, `reduction`, `sparse`, each with a word in a
    Str.
    """

    loss: Expr
    chain: tuple[Expr, ...]
    over: tuple[Expr, ...] | None
    settings: tuple[Argument, ...] = ()


@node
class Report(Node):
    name: Name
    value: Expr


@node
class Return(Node):
    value: Expr


# -- statements of a file ------------------------------------------------------------------------


@node
class Import(Node):
    """`import "layers.gc" as nn`; without a name the file's definitions are taken over."""

    path: Str
    alias: Name | None


@node
class Const(Node):
    name: Name
    value: Expr


@node
class Parameter(Node):
    name: Name
    default: Expr | None


@node
class Function(Node):
    """Either form of `fn`; `fn f(x) = e` has the body `return e`."""

    name: Name
    parameters: tuple[Parameter, ...]
    body: tuple[Statement, ...]


@node
class Input(Node):
    name: Name
    type: TypeExpr


@node
class Step(Node):
    name: Name
    inputs: tuple[Input, ...]
    body: tuple[Statement, ...]


@node
class Data(Node):
    """`data train = npz("x.npz", batch=256, shuffle(seed=0))`."""

    name: Name
    source: Call


@node
class Train(Node):
    """`train for 60 epochs`."""

    count: Expr
    unit: Literal["epochs", "steps"]


@node
class Strategy(Node):
    name: Name
    value: StrategyExpr


Statement: TypeAlias = (
    Import | Const | Function | Step | Data | Train | Strategy
    | Variable | Assign | Update | For | If | Minimize | Report | Return
)  # fmt: skip


@node
class Comment(Node):
    """`# text`, with its sign; trailing: something stands before it on its line."""

    text: str
    trailing: bool


@node
class Module(Node):
    """A file. Comments do not count in comparisons."""

    items: tuple[Statement, ...]
    comments: tuple[Comment, ...] = ()


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
