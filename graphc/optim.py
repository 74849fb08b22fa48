"""Optimizers, schedules and transforms, by the names that .gc files use too.

graphc.optim.chain(graphc.optim.clip_by_global_norm(1.0), graphc.optim.adam(1e-3))
"""

from typing import NoReturn

from graphc.ops.optimizers.groups import ByGroup as by_group
from graphc.ops.optimizers.loss_scale import LossScale as loss_scale
from graphc.ops.optimizers.optimizer import Optimizer, Transform, chain
from graphc.ops.optimizers.schedules import ConstantRate as constant_rate
from graphc.ops.optimizers.schedules import CosineDecay as cosine_decay
from graphc.ops.optimizers.schedules import CosineRestarts as cosine_restarts
from graphc.ops.optimizers.schedules import ExponentialDecay as exponential_decay
from graphc.ops.optimizers.schedules import LinearWarmup as linear_warmup
from graphc.ops.optimizers.schedules import OneCycle as one_cycle
from graphc.ops.optimizers.schedules import PiecewiseConstant as piecewise_constant
from graphc.ops.optimizers.schedules import PolynomialDecay as polynomial_decay
from graphc.ops.optimizers.schedules import Schedule
from graphc.ops.optimizers.transforms import ClipByGlobalNorm as clip_by_global_norm
from graphc.ops.optimizers.transforms import ClipByValue as clip_by_value
from graphc.ops.optimizers.transforms import Ema as ema
from graphc.ops.optimizers.transforms import Reporting as reporting
from graphc.ops.optimizers.update_rules import Adagrad as adagrad
from graphc.ops.optimizers.update_rules import Adam as adam
from graphc.ops.optimizers.update_rules import Adamw as adamw
from graphc.ops.optimizers.update_rules import Lamb as lamb
from graphc.ops.optimizers.update_rules import Lion as lion
from graphc.ops.optimizers.update_rules import Momentum as momentum
from graphc.ops.optimizers.update_rules import Nesterov as nesterov
from graphc.ops.optimizers.update_rules import Rmsprop as rmsprop
from graphc.ops.optimizers.update_rules import Sgd as sgd
from graphc.support.calls import explain_classes

__all__ = [
    "Optimizer",
    "Schedule",
    "Transform",
    "adagrad",
    "adam",
    "adamw",
    "by_group",
    "chain",
    "clip_by_global_norm",
    "clip_by_value",
    "constant_rate",
    "cosine_decay",
    "cosine_restarts",
    "ema",
    "exponential_decay",
    "lamb",
    "linear_warmup",
    "lion",
    "loss_scale",
    "momentum",
    "nesterov",
    "one_cycle",
    "piecewise_constant",
    "polynomial_decay",
    "reporting",
    "rmsprop",
    "sgd",
]


def __getattr__(name: str) -> NoReturn:
    from graphc.support.unknown_names import unknown_name

    def help() -> str:
        from graphc.frontend.numpy.other_words import of_optim

        return of_optim(name, __all__)

    raise unknown_name(f"graphc.optim has no '{name}'", name, help)


explain_classes((globals()[name] for name in __all__ if name != "chain"), "optim_arguments")
