"""The text of a program."""

from graphc.ir.builder import Builder
from graphc.lowering.program.listing import print_program
from graphc.lowering.schedule.schedule import schedule
from graphc.testing.models import classifier, entry, param

TEXT = """\
program small on mesh()
  memory 160 bytes: arena 128, constants 4, variables 28
  input x : f32[batch=4,2]
  variable w : f32[2,3] in %w
  variable n : f32[] in %n
  setup
    %const : f32[] @constant = const {value=1.0, dtype=f32}
  prologue
    %x : f32[4,2] @0 = feed x
    %einsum : f32[4,3] @64 = einsum {spec='bk,kn->bn'} %x, %w
    %transpose : f32[3,4] @%einsum+0 = transpose {perm=(1, 0)} %einsum
  commit
    %n : f32[] @variable = add %n, %const
  output y = %transpose
"""


def test_a_program_reads_from_top_to_bottom() -> None:
    f = Builder("small")
    x, w, n = entry(f, "x", (4, 2)), param(f, "w", (2, 3)), param(f, "n", ())
    y = f.einsum(x, w, spec="bk,kn->bn")
    f.outputs["y"] = f.transpose(y, perm=(1, 0)).name
    f.updates["n"] = (n + 1.0).name
    assert print_program(schedule(f.build())) == TEXT


def test_the_text_of_a_program_is_the_same_every_time() -> None:
    texts = {print_program(schedule(classifier())) for _ in range(3)}
    assert len(texts) == 1
