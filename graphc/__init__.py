"""graphc: a dataflow-graph compiler for training steps, written for one device, placed on many.

This page is the public surface. Names are imported when they are first used, so that
`import graphc` (and `graphc --help`) costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphc.collector import collector_paused

if TYPE_CHECKING:
    from graphc import init, nn, optim
    from graphc.api import StepTrainer, compile
    from graphc.autodiff import gradients
    from graphc.builder import Builder
    from graphc.driver import compile_module
    from graphc.errors import GraphcError, GraphcWarning
    from graphc.frontend.declare import (
        minimize,
        param,
        report,
        scope,
        state,
        training,
        update,
    )
    from graphc.frontend.lower import load_module, module_of_source
    from graphc.frontend.trace import trace
    from graphc.graph import Graph
    from graphc.placement import Mesh
    from graphc.runtime.data import rebatch, replica_streams
    from graphc.runtime.plan import Plan
    from graphc.runtime.plan import load as load_plan
    from graphc.runtime.trainer import Trainer
    from graphc.strategy import Strategy, parse_strategy
    from graphc.text import parse_ir, print_ir
    from graphc.verify import verify

# name -> (module, attribute); '' is the module itself
_WHERE = {
    "compile": ("graphc.api", "compile"),
    "StepTrainer": ("graphc.api", "StepTrainer"),
    "param": ("graphc.frontend.declare", "param"),
    "state": ("graphc.frontend.declare", "state"),
    "update": ("graphc.frontend.declare", "update"),
    "report": ("graphc.frontend.declare", "report"),
    "minimize": ("graphc.frontend.declare", "minimize"),
    "scope": ("graphc.frontend.declare", "scope"),
    "training": ("graphc.frontend.declare", "training"),
    "nn": ("graphc.nn", ""),
    "optim": ("graphc.optim", ""),
    "init": ("graphc.init", ""),
    "trace": ("graphc.frontend.trace", "trace"),
    "load_module": ("graphc.frontend.lower", "load_module"),
    "module_of_source": ("graphc.frontend.lower", "module_of_source"),
    "compile_module": ("graphc.driver", "compile_module"),
    "Trainer": ("graphc.runtime.trainer", "Trainer"),
    "Plan": ("graphc.runtime.plan", "Plan"),
    "load_plan": ("graphc.runtime.plan", "load"),
    "rebatch": ("graphc.runtime.data", "rebatch"),
    "replica_streams": ("graphc.runtime.data", "replica_streams"),
    "Strategy": ("graphc.strategy", "Strategy"),
    "parse_strategy": ("graphc.strategy", "parse_strategy"),
    "Mesh": ("graphc.placement", "Mesh"),
    "Graph": ("graphc.graph", "Graph"),
    "Builder": ("graphc.builder", "Builder"),
    "gradients": ("graphc.autodiff", "gradients"),
    "print_ir": ("graphc.text", "print_ir"),
    "parse_ir": ("graphc.text", "parse_ir"),
    "verify": ("graphc.verify", "verify"),
    "GraphcError": ("graphc.errors", "GraphcError"),
    "GraphcWarning": ("graphc.errors", "GraphcWarning"),
}

__all__ = [
    "Builder",
    "Graph",
    "GraphcError",
    "GraphcWarning",
    "Mesh",
    "Plan",
    "StepTrainer",
    "Strategy",
    "Trainer",
    "compile",
    "compile_module",
    "gradients",
    "init",
    "load_module",
    "load_plan",
    "minimize",
    "module_of_source",
    "nn",
    "optim",
    "param",
    "parse_ir",
    "parse_strategy",
    "print_ir",
    "rebatch",
    "replica_streams",
    "report",
    "scope",
    "state",
    "trace",
    "training",
    "update",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'graphc' has no attribute '{name}'")
    module, attribute = _WHERE[name]
    with collector_paused():
        found = import_module(module)
    value = getattr(found, attribute) if attribute else found
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
