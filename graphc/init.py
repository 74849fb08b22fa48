"""Initialisers, by the names of .gc files: `graphc.param((64, 10), init=init.he_normal())`."""

from graphc.ops.init import Constant as constant
from graphc.ops.init import GlorotNormal as glorot_normal
from graphc.ops.init import GlorotUniform as glorot_uniform
from graphc.ops.init import HeNormal as he_normal
from graphc.ops.init import HeUniform as he_uniform
from graphc.ops.init import Initializer
from graphc.ops.init import Normal as normal
from graphc.ops.init import Ones as ones
from graphc.ops.init import Uniform as uniform
from graphc.ops.init import Zeros as zeros

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
