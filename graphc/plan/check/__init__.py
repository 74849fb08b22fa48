"""What holds for every well-formed Program and plan: a plan file is checked before anything is run.

A program comes from the compiler, or from a file that anybody may have written. So nothing that it
says of itself is believed: every instruction's type is inferred again from its operands by the op's
own rule, and compared with the buffers; a view is one that its op can give; a value is made before
it is read. Where memory is, a program does not say: who runs it plans that. So what passes runs
without a stray read, and without a wait for somebody who never comes.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphc.lowering.program.program import Program
from graphc.plan.check.buffers import buffers_hold_what_they_say
from graphc.plan.check.ends import ends_are_there
from graphc.plan.check.flow import made_before_read
from graphc.plan.check.kernels import kernels_are_typed
from graphc.plan.check.meshes import mesh_is_possible
from graphc.plan.check.starts import collectives_are_typed

# In this order: each relies on what those before it have said.
LAWS = (
    mesh_is_possible,
    buffers_hold_what_they_say,
    ends_are_there,
    made_before_read,
    kernels_are_typed,
    collectives_are_typed,
)


def complaints(program: Program) -> Iterator[str]:
    """A sentence for each way in which a program breaks the first law that it breaks."""
    for law in LAWS:
        sentences = list(law(program))
        if sentences:
            yield from sentences
            return
