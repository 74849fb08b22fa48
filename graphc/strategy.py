"""Strategies: a few lines of data that say how a step's tensors lie on a mesh.

A strategy is a frozen record; `a * b` joins meshes. What it comes to is a `MeshLayout`, and that is
all the compiler ever sees of it: no pass knows a strategy's name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from graphc.errors import GraphcError, Span, did_you_mean
from graphc.placement import Axis, Mesh, R, Split, State

if TYPE_CHECKING:
    from graphc.frontend.syntax import StrategyExpr


NO_MESH = Mesh()
NO_CUT = "*.none"  # the glob of a cut in which the compiler chose to leave every variable whole


@dataclass(frozen=True)
class Rule:
    """Along `axis`, the variables whose names match `glob` have `state`."""

    glob: str
    axis: str
    state: State


@dataclass(frozen=True)
class MeshLayout:
    """What a strategy says: the mesh, and the placement of what comes from outside.

    batch:     axes along which the batch is cut
    variables: rules for variables, the first that matches an axis wins; replicated otherwise
    tree:      axes over which partial sums are added by a fixed tree (tree_reduce)
    choose:    axes along which the compiler chooses the cut of the variables itself
    """

    mesh: Mesh = NO_MESH
    batch: tuple[str, ...] = ()
    variables: tuple[Rule, ...] = ()
    tree: tuple[str, ...] = ()
    choose: tuple[str, ...] = ()

    def variable_state(self, name: str, axis: str) -> State:
        """The state of a variable along an axis."""
        for rule in self.variables:
            if rule.axis == axis and fnmatchcase(name, rule.glob):
                return rule.state
        return R


class Strategy(ABC):
    """How a step is spread. Combine with `*`; print with `str`; compare with `==`."""

    @abstractmethod
    def layout(self, name: str) -> MeshLayout:
        """The layout on an axis called `name`."""

    @property
    def axis_name(self) -> str:
        """What this strategy calls its axis when the name is free."""
        return ""

    @property
    def parts(self) -> tuple[Strategy, ...]:
        """The strategies that this one is the product of."""
        return (self,)

    def with_cuts(self, cut: tuple[tuple[str, int], ...]) -> Strategy:
        """The same strategy with the cut of the variables that the compiler chose."""
        return self

    def __mul__(self, other: Strategy) -> Strategy:
        parts = tuple(p for p in self.parts + other.parts if not isinstance(p, OneDevice))
        return Product(parts) if len(parts) > 1 else (parts or (OneDevice(),))[0]

    def __str__(self) -> str:
        given = [(f.name, getattr(self, f.name), f.default) for f in fields(self)]  # type: ignore[arg-type]
        shown = [_argument(k, v, i) for i, (k, v, d) in enumerate(given) if i == 0 or v != d]
        return f"{_name_of(type(self))}({', '.join(shown)})"


def _argument(name: str, value: Any, position: int) -> str:
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        text = "{" + ", ".join(f'"{k}": {v}' for k, v in value) + "}"
    elif isinstance(value, tuple):
        text = f"[{', '.join(map(str, value))}]"
    else:
        text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if position == 0 else f"{name}={text}"


@dataclass(frozen=True)
class OneDevice(Strategy):
    """Everything on one device: the oracle of every other strategy."""

    def layout(self, name: str) -> MeshLayout:
        return MeshLayout()


@dataclass(frozen=True)
class Mirrored(Strategy):
    """Synchronous data parallel: the batch is cut over `devices`, every device has all variables.

    reduce is the order of the sums across devices: 'all_reduce' (the engine's own) or 'tree'
    (a balanced binary tree, fixed).
    """

    devices: int = 1
    reduce: str = "all_reduce"

    def __post_init__(self) -> None:
        _check(self.devices >= 1, f"mirrored({self.devices}): a mesh has at least one device")
        _check(self.reduce in ("all_reduce", "tree"), f"reduce='{self.reduce}': all_reduce or tree")

    @property
    def axis_name(self) -> str:
        return "data"

    def layout(self, name: str) -> MeshLayout:
        tree = (name,) if self.reduce == "tree" else ()
        return MeshLayout(Mesh((Axis(name, self.devices),)), batch=(name,), tree=tree)


@dataclass(frozen=True)
class TensorSplit(Strategy):
    """Model parallel: variables are cut over `devices`; what follows is worked out.

    cut maps name globs to the dim that is cut, such as {"w*": 1}; without it the compiler takes
    the cut that moves the fewest bytes, and says which.
    """

    devices: int = 1
    cut: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        _check(self.devices >= 1, f"tensor_split({self.devices}): a mesh has at least one device")

    @property
    def axis_name(self) -> str:
        return "model"

    def layout(self, name: str) -> MeshLayout:
        rules = tuple(Rule(glob, name, Split(dim)) for glob, dim in self.cut)
        mesh = Mesh((Axis(name, self.devices),))
        return MeshLayout(mesh, variables=rules, choose=() if self.cut else (name,))

    def with_cuts(self, cut: tuple[tuple[str, int], ...]) -> Strategy:
        return replace(self, cut=cut or ((NO_CUT, 0),))


@dataclass(frozen=True)
class Accumulate(Strategy):
    """Gradient accumulation: the batch is cut into `turns` microbatches, one after the other."""

    turns: int = 1

    def __post_init__(self) -> None:
        _check(self.turns >= 1, f"accumulate({self.turns}): there is at least one microbatch")

    @property
    def axis_name(self) -> str:
        return "turn"

    def layout(self, name: str) -> MeshLayout:
        return MeshLayout(Mesh((Axis(name, self.turns, "time"),)), batch=(name,))


@dataclass(frozen=True)
class Product(Strategy):
    """Several strategies at once, each on an axis of its own, the first one's axis the major."""

    factors: tuple[Strategy, ...] = ()

    @property
    def parts(self) -> tuple[Strategy, ...]:
        return self.factors

    def layout(self, name: str) -> MeshLayout:
        return layout_of(self)

    def __str__(self) -> str:
        return " * ".join(map(str, self.factors))


def named_parts(strategy: Strategy) -> list[tuple[str, Strategy]]:
    """The parts of a strategy, each with the name of its axis, equal names told apart."""
    taken: set[str] = set()
    named = []
    for part in strategy.parts:
        base = name = part.axis_name
        number = 1
        while name in taken:
            number += 1
            name = f"{base}{number}"
        taken.add(name)
        named.append((name, part))
    return named


def layout_of(strategy: Strategy) -> MeshLayout:
    """The layout of a strategy: the meshes of its parts joined, axes named apart."""
    layouts = [part.layout(name) for name, part in named_parts(strategy)]
    return MeshLayout(
        Mesh(tuple(a for x in layouts for a in x.mesh.axes)),
        tuple(a for x in layouts for a in x.batch),
        tuple(r for x in layouts for r in x.variables),
        tuple(a for x in layouts for a in x.tree),
        tuple(a for x in layouts for a in x.choose),
    )


STRATEGIES: dict[str, type[Strategy]] = {
    "one_device": OneDevice,
    "mirrored": Mirrored,
    "tensor_split": TensorSplit,
    "accumulate": Accumulate,
}

# What TensorFlow calls things, and what they are here.
ELSEWHERE: Mapping[str, str] = {
    "MirroredStrategy": "mirrored(n)",
    "OneDeviceStrategy": "one_device()",
    "MultiWorkerMirroredStrategy": "mirrored(n), over several machines",
    "CentralStorageStrategy": "central_storage(n)",
    "ParameterServerStrategy": "parameter_server(workers, servers)",
    "TPUStrategy": "mirrored(n) or tensor_split(n)",
    "EXPERIMENTAL_TREE": 'mirrored(n, reduce="tree")',
    "EXPERIMENTAL_ACCUMULATE_N": "accumulate(k)",
    "ADD_N": 'mirrored(n, reduce="all_reduce")',
    "tree_reduce": 'mirrored(n, reduce="tree")',
    "data_parallel": "mirrored(n)",
    "ddp": "mirrored(n)",
    "fsdp": "zero(n, stage=3)",
}


def _name_of(cls: type[Strategy]) -> str:
    return next(name for name, known in STRATEGIES.items() if known is cls)


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise GraphcError("G0402", message)


def make_strategy(name: str, args: tuple[Any, ...], options: Mapping[str, Any]) -> Strategy:
    """The strategy `name(*args, **options)`. Raises G0401 (unknown), G0402 (bad arguments)."""
    last = name.rsplit(".", 1)[-1]
    if last not in STRATEGIES:
        known = ELSEWHERE.get(last)
        hint = f"did you mean `{known}`?" if known else did_you_mean(last, tuple(STRATEGIES))
        hint = hint or f"known: {', '.join(STRATEGIES)}"
        raise GraphcError("G0401", f"there is no strategy '{name}'", help=hint)
    cls = STRATEGIES[last]
    names = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    if len(args) > len(names) or not set(options) <= set(names):
        wanted = f"{last}({', '.join(names)})"
        raise GraphcError("G0402", f"{last} does not take these arguments", help=f"write {wanted}")
    given = dict(zip(names, args, strict=False)) | dict(options)
    return cls(**{k: _coerce(cls, k, v) for k, v in given.items()})


def _coerce(cls: type[Strategy], name: str, value: Any) -> Any:
    default: Any = next(f.default for f in fields(cls) if f.name == name)  # type: ignore[arg-type]
    if isinstance(value, Mapping):
        value = tuple(value.items())
    if isinstance(default, int) and isinstance(value, list | tuple):
        value = len(value)  # an explicit list of devices
    if type(value) is not type(default):
        raise GraphcError("G0402", f"{_name_of(cls)}: {name} can't be {value!r}")
    if name == "cut" and not all(isinstance(d, int) for _, d in value):
        raise GraphcError("G0402", f'{_name_of(cls)}: cut maps name globs to dims, {{"w*": 1}}')
    return value


def parse_strategy(text: str) -> Strategy:
    """The strategy that `text` says, such as `mirrored(4) * accumulate(2)`. Raises G01xx, G04xx."""
    from graphc.frontend.parse import parse_strategy as parse

    return strategy_of(parse(text))


def strategy_of(tree: StrategyExpr, named: Mapping[str, Strategy] | None = None) -> Strategy:
    """The strategy of a syntax tree; `named` are the ones that the file defines."""
    from graphc.frontend.syntax import Call, Name

    result: Strategy = OneDevice()
    for factor in tree.factors:
        match factor:
            case Name(id=name) if named and name in named:
                result = result * named[name]
            case Name(id=name):
                result = result * _placed(factor.span, name, (), {})
            case Call():
                args = tuple(_plain(a.value) for a in factor.arguments if a.name is None)
                options = {a.name: _plain(a.value) for a in factor.arguments if a.name}
                result = result * _placed(factor.span, _dotted(factor.function), args, options)
    return result


def _placed(span: Span, name: str, args: tuple[Any, ...], options: Mapping[str, Any]) -> Strategy:
    try:
        return make_strategy(name, args, options)
    except GraphcError as error:
        raise error.at(span) from None


def _dotted(tree: Any) -> str:
    from graphc.frontend.syntax import Attribute, Name

    match tree:
        case Name(id=name):
            return name
        case Attribute(name=name):
            return name
        case _:
            return ""


def _plain(tree: Any) -> Any:
    """The Python value of a literal in a strategy's arguments. Raises G0402 for anything else."""
    from graphc.frontend import syntax as s

    match tree:
        case s.Int(value=v) | s.Float(value=v) | s.Str(value=v) | s.Bool(value=v):
            return v
        case s.Null():
            return None
        case s.List(items=items) | s.Tuple(items=items):
            return [_plain(x) for x in items]
        case s.Map(entries=entries):
            return {_plain(e.key): _plain(e.value) for e in entries}
        case s.Unary(op="-", operand=s.Int(value=v) | s.Float(value=v)):
            return -v
        case _:
            message = "an argument of a strategy is a number, a string, a list or a map"
            raise GraphcError("G0402", message, span=tree.span)
