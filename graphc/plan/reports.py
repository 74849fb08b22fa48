"""How the results of evaluation are put together over several batches."""

from __future__ import annotations

from graphc.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class PlannedReport:
    """How one result is put together.

    batch:       its dims that are as long as the batch; along one, the batches are concatenated
    numerator, denominator: outputs whose quotient it is, and which are not results themselves; ''
                 where it is no quotient
    weighted:    whether these two are weighted by the examples of each batch, like a mean; else
                 they are sums over the batch, and added up
    needs:       the inputs that it depends on
    """

    batch: tuple[int, ...] = ()
    numerator: str = ""
    denominator: str = ""
    weighted: bool = False
    needs: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """The outputs that it is made of, which are no results themselves."""
        return tuple(x for x in (self.numerator, self.denominator) if x)
