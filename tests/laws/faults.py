"""The seeded faults, each of which must be caught: planted one at a time by test_faults.

A fault changes one function or one fact of an op, as a careless edit would. `caught` names the law
that notices it first:

    verifier   the laws of the IR, checked after every pass
    mesh       law 1, by the simulator
    run        law 1, by the backends
    passes     law 2
    memory     no buffer is read where something else lies
    taken      steps take the memory that is told before
    guard      machine code touches no memory but its own, and uses nothing that nobody wrote
    address    a build that checks addresses says which kernel reaches outside of which buffer
    slope      the gradient is the slope of the loss
    structure  the number and kind of collectives
    bytes      placing is as cheap as the best of all placings
    check      `graphc check` says ok to no run with a NaN or an infinity of its own
    kernels    lowered steps of unusual structure stay in their memory, and give what NumPy gives
    overwritten  no kernel writes what its product still reads
    resume     a run that is saved and taken up again ends with the same bits
    damage     a damaged checkpoint is refused, or gives what was saved
    fit        a checkpoint of another step is refused
    seeds      first values follow from the seed and the names
    ranges     traced functions are NumPy's at awkward numbers
    sizes      the batch's size is that of a short batch
    dtypes     a step of f64 computes in f64
    failing    law 9: a step that fails leaves no trace
    rows       a table that is cut has the bits of the whole one
    short      a step of any number of examples is that of the reference
"""

from __future__ import annotations

from laws import (
    faults_failing,
    faults_homes,
    faults_kernels,
    faults_memory,
    faults_numpy,
    faults_ops,
    faults_passes,
    faults_run,
    faults_saved,
)
from laws.fault import FAULTS, Fault

__all__ = [
    "FAULTS",
    "Fault",
    "faults_failing",
    "faults_homes",
    "faults_kernels",
    "faults_memory",
    "faults_numpy",
    "faults_ops",
    "faults_passes",
    "faults_run",
    "faults_saved",
]
