"""The laws of layering: lower never imports higher; libraries stay where they belong."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "graphc").rglob("*.py"))
BACKENDS = sorted((ROOT / "backends").rglob("*.py"))

# Lower layers first; a module may import its own layer and those above it in this list.
LAYERS = [
    {"errors", "error_codes", "collector", "distance", "files", "reading", "datafiles", "records"},
    {"types", "placement", "layout", "orders", "leaves", "arena"},
    {"config", "op", "dims", "random"},
    {"graph", "varying", "aggregation"},
    {"builder", "value"},
    {"sparse"},
    {"ops"},
    {"verify", "text", "turns"},
    {"autodiff", "frontend", "strategy", "module"},
    {"program", "instructions", "lifetimes", "traffic", "later"},
    {"kernels"},
    {"passes"},
    {"runtime"},
    {"driver", "periodic", "nn", "optim", "init", "api", "bits", "check", "promise", "kept"},
    {"inspect", "testing", "cli", "__init__", "__main__"},
]
LEVEL = {name: i for i, layer in enumerate(LAYERS) for name in layer}
LIBRARIES = {
    "networkx": {"graph"},
    "lark": {"frontend", "text"},
    "click": {"cli", "inspect"},
    "rich": {"cli"},
    "safetensors": {"runtime"},
    "llvmlite": set(),  # of a backend only
}


def layer_of(path: Path) -> str:
    part = path.relative_to(ROOT / "graphc").parts[0]
    return part.removesuffix(".py")


def imports(path: Path, top_level_only: bool = False) -> list[tuple[str, int]]:
    """(module, line) of every import outside `if TYPE_CHECKING`; lazy ones are left out on wish."""
    tree = ast.parse(path.read_text())
    found: list[tuple[str, int]] = []
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.FunctionDef() | ast.AsyncFunctionDef() if top_level_only:
                continue
            case ast.Import(names=names):
                found += [(a.name, node.lineno) for a in names]
            case ast.ImportFrom(module=str(module), level=0):
                found.append((module, node.lineno))
        stack.extend(ast.iter_child_nodes(node))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_lower_layers_do_not_import_higher_ones(path: Path) -> None:
    mine = layer_of(path)
    assert mine in LEVEL, f"{mine} has no place in the layers"
    for module, line in imports(path, top_level_only=True):
        parts = module.split(".")
        if parts[0] == "graphc" and len(parts) > 1:
            assert LEVEL[parts[1]] <= LEVEL[mine], f"{path}:{line} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_libraries_stay_where_they_belong(path: Path) -> None:
    for module, line in imports(path):
        top = module.split(".")[0]
        assert top != "graphc_numpy", f"{path}:{line}: graphc never imports a backend"
        if top in LIBRARIES:
            assert layer_of(path) in LIBRARIES[top], f"{path}:{line} imports {module}"
        assert top not in ("pickle", "marshal", "shelve"), f"{path}:{line} imports {module}"


@pytest.mark.parametrize("path", FILES + BACKENDS, ids=lambda p: str(p.relative_to(ROOT)))
def test_nothing_is_evaluated_and_only_config_reads_the_environment(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(func=ast.Name(id="eval" | "exec")):
                raise AssertionError(f"{path}:{node.lineno} evaluates text")
            case ast.Attribute(value=ast.Name(id="os"), attr="environ"):
                assert path.name == "config.py", f"{path}:{node.lineno} reads the environment"


SEEN_BY_BACKENDS = "program kernels layout runtime types op ops errors placement config collector"
ALLOWED_IN_BACKENDS = [*(f"graphc.{n}" for n in SEEN_BY_BACKENDS.split()), "graphc_numpy"]


@pytest.mark.parametrize("path", BACKENDS, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_backend_sees_only_what_a_backend_may_see(path: Path) -> None:
    for module, line in imports(path):
        if module.startswith("graphc"):
            allowed = any(module == a or module.startswith(f"{a}.") for a in ALLOWED_IN_BACKENDS)
            assert allowed, f"{path}:{line} imports {module}"


@pytest.mark.parametrize("path", FILES + BACKENDS, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_stay_small(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    limit = {"error_codes.py": 1000}.get(path.name, 420)
    assert lines <= limit, f"{path} has {lines} lines: split it"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_pass_asks_for_an_op_by_name(path: Path) -> None:
    if layer_of(path) not in ("passes", "autodiff"):
        return
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Compare(left=ast.Attribute(value=ast.Attribute(attr="op"), attr="name")):
                raise AssertionError(f"{path}:{node.lineno} compares an op's name")
