"""Initializers, by the names of .gc files: `graphc.param((64, 10), init=init.he_normal())`."""

from graphc.ops.initializers import Constant as constant
from graphc.ops.initializers import GlorotNormal as glorot_normal
from graphc.ops.initializers import GlorotUniform as glorot_uniform
from graphc.ops.initializers import HeNormal as he_normal
from graphc.ops.initializers import HeUniform as he_uniform
from graphc.ops.initializers import Initializer
from graphc.ops.initializers import Normal as normal
from graphc.ops.initializers import Ones as ones
from graphc.ops.initializers import Uniform as uniform
from graphc.ops.initializers import Zeros as zeros

__all__ = [
    "Initializer",
    "constant",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "normal",
    "ones",
    "uniform",
    "zeros",
]
