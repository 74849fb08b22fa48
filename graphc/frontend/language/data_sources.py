"""`data NAME = KIND(path, batch=..., shuffle(seed=...), shard(policy))` as a specification."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphc.frontend.language.static import in_words, is_integer
from graphc.frontend.module import DataSpec
from graphc.support.array_files import csv_header, npz_shapes
from graphc.support.errors import GraphcError, did_you_mean
from graphc.support.limits import SHARD_POLICIES
from graphc.support.untrusted_files import Unreadable, files_of
from graphc.syntax import tree as s

KINDS = ("npz", "csv")
Static = Callable[[s.Expr], Any]

_HELP = 'write data train = npz("file.npz", batch=256, shuffle(seed=0))'


def data_spec(tree: s.DataStatement, folder: Path, static: Static) -> DataSpec:
    """The specification of a data source; its path is relative to folder. Raises G0126, G0601."""
    source = tree.source
    kind = source.function.id if isinstance(source.function, s.Name) else ""
    if kind not in KINDS:
        hint = did_you_mean(kind, KINDS) or f"known: {', '.join(KINDS)}"
        message = f"there is no data source '{kind}'"
        raise GraphcError("G0601", message, span=source.function.span, help=hint)
    path, batch, stages = _arguments(tree, static)
    where = _resolved(folder / _path(path, tree), tree)
    seed, shard = stages.get("shuffle"), stages.get("shard", "data")
    return DataSpec(tree.name.id, kind, where, _batch(batch, tree), seed, shard, {}, source.span)


def _arguments(tree: s.DataStatement, static: Static) -> tuple[Any, Any, dict[str, Any]]:
    """(path, batch, what the stages say) as the program gives them."""
    path: Any = None
    batch: Any = None
    stages: dict[str, Any] = {}
    for argument in tree.source.arguments:
        match argument:
            case s.Argument(name=None, value=s.Call(function=s.Name(id=name)) as stage) if (
                name in _STAGES
            ):
                if name in stages:
                    text = f"the data has two stages {name}"
                    raise GraphcError("G0126", text, span=stage.span)
                stages[name] = _STAGES[name](stage, static)
            case s.Argument(name="batch", value=value):
                batch = static(value)
            case s.Argument(name=None, value=value) if path is None:
                path = static(value)
            case s.Argument(name=name):
                what = f"'{name}'" if name else "this argument"
                message = f"data '{tree.name.id}' does not take {what}"
                raise GraphcError("G0126", message, span=argument.span, help=_HELP)
    return path, batch, stages


def _path(path: Any, tree: s.DataStatement) -> str:
    if isinstance(path, str) and path:
        return path
    what = "no path" if path is None else f"{in_words(path)} for a path"
    message = f"data '{tree.name.id}' has {what}"
    raise GraphcError("G0126", message, span=tree.source.span, help=_HELP)


def _batch(batch: Any, tree: s.DataStatement) -> int:
    if is_integer(batch) and batch >= 1:
        return int(batch)
    what = "no batch=..." if batch is None else f"batch={in_words(batch, article=False)}"
    message = f"data '{tree.name.id}' has {what}: a batch has at least one example"
    raise GraphcError("G0126", message, span=tree.source.span, help=_HELP)


def _resolved(path: Path, tree: s.DataStatement) -> str:
    try:
        return str(path.resolve())
    except (OSError, ValueError, RuntimeError) as error:
        raise GraphcError("G0602", f"can't be a path: {error}", span=tree.source.span) from None


def _seed(tree: s.Call, static: Static) -> int:
    match tree.arguments:
        case ():
            return 0
        case (s.Argument(name=None | "seed", value=value),):
            seed = static(value)
            if is_integer(seed) and 0 <= seed < 2**63:
                return int(seed)
    message = "shuffle takes a seed, an integer from 0"
    raise GraphcError("G0126", message, span=tree.span, help="shuffle(seed=0)")


def _policy(tree: s.Call, static: Static) -> str:
    match tree.arguments:
        case (s.Argument(name=None | "policy", value=value),):
            policy = static(value)
            if isinstance(policy, str) and policy in SHARD_POLICIES:
                return policy
            hint = did_you_mean(policy, SHARD_POLICIES) if isinstance(policy, str) else ""
            if hint:
                message = f"there is no shard policy '{policy}'"
                raise GraphcError("G0126", message, span=tree.span, help=hint)
    message = f"shard takes a policy: {', '.join(SHARD_POLICIES)}"
    raise GraphcError("G0126", message, span=tree.span, help='shard("file")')


_STAGES: dict[str, Callable[[s.Call, Static], Any]] = {"shuffle": _seed, "shard": _policy}


# -- the shapes of a data file's entries, from its header -----------------------------------------

Shapes = dict[str, tuple[int, ...]]


def entry_shapes(spec: DataSpec) -> Shapes:
    """The shapes by entry, which bind the named dims of a program. The first dim is the examples'.

    Only a hint: {} if the file is missing or damaged, whose error is raised when it is read.
    """
    readers = {"npz": npz_shapes, "csv": _csv}
    try:
        return readers[spec.kind](files_of(spec.path)[0])
    except (Unreadable, FileNotFoundError):
        return {}


def _csv(path: Path) -> Shapes:
    """The shapes of the entries of a .csv.

    A column is [n]; columns `x.0`, `x.1`, ... are one entry [n, columns]. n is unknown, -1.
    """
    plain = csv_header(path)
    numbered = Counter(m[1] for name in plain if (m := re.fullmatch(r"(.+)\.\d+", name)))
    return dict.fromkeys(plain, (-1,)) | {k: (-1, n) for k, n in numbered.items()}
