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
    if name.startswith("__"):
        raise AttributeError(name)
    from graphc.frontend.numpy.other_words import of_optim
    from graphc.support.caller import user_span
    from graphc.support.errors import UnknownNameError

    text, help = f"graphc.optim has no '{name}'", of_optim(name, __all__)
    raise UnknownNameError("G0836", text, span=user_span(), help=help)


_WORDS = {  # arguments of others
    "beta1": "it is called b1=",
    "beta_1": "it is called b1=",
    "beta2": "it is called b2=",
    "beta_2": "it is called b2=",
    "betas": "write b1=0.9, b2=0.999",
    "epsilon": "it is called eps=",
    "params": "leave it out: graphc.compile(step, params, ...) trains its params",
    "rho": "it is called decay=",
    "alpha": "it is called decay=",
    "initial_accumulator_value": "it is called initial=",
    "clipnorm": "write graphc.optim.chain(graphc.optim.clip_by_global_norm(1.0), ...)",
    "global_clipnorm": "write graphc.optim.chain(graphc.optim.clip_by_global_norm(1.0), ...)",
    "clipvalue": "write graphc.optim.chain(graphc.optim.clip_by_value(1.0), ...)",
    "amsgrad": "leave it out: there is no AMSGrad",
    "foreach": "leave it out: all updates are compiled together",
    "fused": "leave it out: all updates are compiled together",
    "maximize": "minimize -loss",
    "use_ema": "write graphc.optim.chain(..., graphc.optim.ema(0.999))",
    "weight_decay": "write graphc.optim.adamw(1e-3, weight_decay=0.01)",
    "decay_steps": "it is called steps=",
    "T_max": "it is called steps=",
    "total_steps": "it is called steps=",
    "decay_rate": "it is called factor=",
    "gamma": "it is called factor=",
    "initial_learning_rate": "it is called initial=",
    "init_value": "it is called initial=",
    "max_lr": "it is called peak=",
    "eta_min": "it is called final=",
}
explain_classes((globals()[name] for name in __all__ if name != "chain"), _WORDS)
