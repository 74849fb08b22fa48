"""The syntax tree of a .gc file: frozen nodes, each with the span that it was read from.

Two nodes are equal if they mean the same: spans, and how a number is spelled, are not compared. A
run of operators of one precedence is one flat node (`OperatorChain`), so a sum of 100,000 terms is
not nested 100,000 deep; `graphc.syntax.statement_checks` bounds all other nesting.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from graphc.syntax.node import SyntaxNode as SyntaxNode
from graphc.syntax.node import children as children
from graphc.syntax.node import node
from graphc.syntax.node import walk as walk

# -- expressions -------------------------------------------------------------------------------


@node
class Name(SyntaxNode):
    """`relu`: a name to look up, or one that is defined here."""

    id: str


@node
class Attribute(SyntaxNode):
    """`nn.dense`: a member of an imported file, or of a dotted variable name."""

    value: Expr
    name: str


@node
class Int(SyntaxNode):
    value: int


@node
class Float(SyntaxNode):
    value: float


@node
class Str(SyntaxNode):
    value: str


@node
class Bool(SyntaxNode):
    value: bool


@node
class Null(SyntaxNode):
    """`none`: no value; in an index, a new dim of size 1."""


@node
class List(SyntaxNode):
    items: tuple[Expr, ...]


@node
class Tuple(SyntaxNode):
    items: tuple[Expr, ...]


@node
class Entry(SyntaxNode):
    key: Expr
    value: Expr


@node
class Map(SyntaxNode):
    """`{"w*": 1}`."""

    entries: tuple[Entry, ...]


@node
class Unary(SyntaxNode):
    op: Literal["-", "not"]
    operand: Expr


@node
class Power(SyntaxNode):
    """`base ** exponent`, which groups to the right."""

    base: Expr
    exponent: Expr


@node
class Link(SyntaxNode):
    """One step of a chain. Its span goes from the chain's first operand to its own."""

    op: str
    operand: Expr


@node
class OperatorChain(SyntaxNode):
    """`first op operand op operand ...`: one precedence, grouped to the left, evaluated in order.

    The ops of one chain come from one of these sets: `or`; `and`; one comparison; `+ -`;
    `* / // % @`.
    """

    first: Expr
    links: tuple[Link, ...]


@node
class Conditional(SyntaxNode):
    """`then if condition else otherwise`; the condition is known at compile time."""

    then: Expr
    condition: Expr
    otherwise: Expr


@node
class Argument(SyntaxNode):
    """One argument of a call, or one option of a variable; name is None for a positional one."""

    name: str | None
    value: Expr


@node
class Call(SyntaxNode):
    function: Expr
    arguments: tuple[Argument, ...]


@node
class SliceExpr(SyntaxNode):
    start: Expr | None
    stop: Expr | None
    step: Expr | None


@node
class Dots(SyntaxNode):
    """`...` in an index: all the dims between."""


@node
class Index(SyntaxNode):
    """`value[items]`; `x[a, b]` has two items, `x[(a, b)]` one."""

    value: Expr
    items: tuple[Expr | SliceExpr | Dots, ...]


Expr: TypeAlias = (
    Name | Attribute | Int | Float | Str | Bool | Null | List | Tuple | Map
    | Unary | Power | OperatorChain | Conditional | Call | Index
)  # fmt: skip


@node
class TypeExpr(SyntaxNode):
    """`f32[batch, 4 * d]`; the dtype's name is known to be one. A scalar has no dims."""

    dtype: str
    dims: tuple[Expr, ...]


@node
class StrategyExpr(SyntaxNode):
    """`mirrored(4) * accumulate(2)`: factors from left to right, the leftmost major.

    A factor is a call of a strategy, or a name: a strategy without arguments, or one that the
    file defines.
    """

    factors: tuple[Name | Call, ...]


# -- statements of a step ------------------------------------------------------------------------


@node
class VariableStatement(SyntaxNode):
    """`param w: f32[64] = zeros() { decay=false }`; `state` is the same but not trained."""

    kind: Literal["param", "state"]
    target: Expr
    type: TypeExpr
    initial: Expr
    options: tuple[Argument, ...]


@node
class HyperStatement(SyntaxNode):
    """`hyper lr = 1e-3`: a number that is set between steps."""

    name: Name
    initial: Expr


@node
class Assign(SyntaxNode):
    """`a, b = value`; with several targets the value is taken apart."""

    targets: tuple[Expr, ...]
    value: Expr


@node
class Update(SyntaxNode):
    """`m <- value`: the state's value after this step."""

    target: Expr
    value: Expr


@node
class For(SyntaxNode):
    """A static loop: unrolled when the graph is built."""

    targets: tuple[Name, ...]
    items: Expr
    body: tuple[Statement, ...]


@node
class Branch(SyntaxNode):
    condition: Expr
    body: tuple[Statement, ...]


@node
class If(SyntaxNode):
    """`if ... else if ... else ...`: the conditions are known at compile time."""

    branches: tuple[Branch, ...]
    otherwise: tuple[Statement, ...]


@node
class Minimize(SyntaxNode):
    """`minimize loss with clip(1.0) | adam(1e-3) over {w, "enc.*"} order tree reduction mean`

    over None: every param. settings: `order`, `reduction`, `sparse`, each with a word in a
    Str, and `every` with a number of steps.
    """

    loss: Expr
    chain: tuple[Expr, ...]
    over: tuple[Expr, ...] | None
    settings: tuple[Argument, ...] = ()


@node
class Report(SyntaxNode):
    name: Name
    value: Expr


@node
class Return(SyntaxNode):
    value: Expr


# -- statements of a file ------------------------------------------------------------------------


@node
class Import(SyntaxNode):
    """`import "layers.gc" as nn`. Without a name, the definitions of the file become the
    importer's."""

    path: Str
    alias: Name | None


@node
class ConstStatement(SyntaxNode):
    name: Name
    value: Expr


@node
class ParameterDeclaration(SyntaxNode):
    name: Name
    default: Expr | None


@node
class Function(SyntaxNode):
    """Either form of `fn`; `fn f(x) = e` has the body `return e`."""

    name: Name
    parameters: tuple[ParameterDeclaration, ...]
    body: tuple[Statement, ...]


@node
class InputStatement(SyntaxNode):
    name: Name
    type: TypeExpr


@node
class StepStatement(SyntaxNode):
    name: Name
    inputs: tuple[InputStatement, ...]
    body: tuple[Statement, ...]


@node
class DataStatement(SyntaxNode):
    """`data train = npz("x.npz", batch=256, shuffle(seed=0))`."""

    name: Name
    source: Call


@node
class Train(SyntaxNode):
    """`train for 60 epochs`."""

    count: Expr
    unit: Literal["epochs", "steps"]


@node
class StrategyStatement(SyntaxNode):
    name: Name
    value: StrategyExpr


Statement: TypeAlias = (
    Import | ConstStatement | Function | StepStatement | DataStatement | Train | StrategyStatement
    | VariableStatement | HyperStatement | Assign | Update | For | If | Minimize | Report | Return
)  # fmt: skip


@node
class Comment(SyntaxNode):
    """`# text`, with the `#`. trailing: whether code precedes it on its line."""

    text: str
    trailing: bool


@node
class SourceFile(SyntaxNode):
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
            case Index(value, items) if not any(isinstance(i, SliceExpr | Dots) for i in items):
                expr = value
            case _:
                return False
