"""What a nightly pass says of leftovers: how many things, and what they go on costing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.core.resources.orphan import Do, Wish
from cloudgpu.core.values.money import Money
from cloudgpu.errors import CloudgpuError, LedgerUnavailable

if TYPE_CHECKING:
    from cloudgpu.control.session import Session


def left_over(session: Session) -> tuple[str, ...]:
    """Return the sentence of what `cloudgpu orphans --clean` would remove; none where that is nothing. Removes nothing.

    What did not answer is no error here: the pass has named it.
    """
    from cloudgpu.control.orphans import survey

    try:
        found = [one for one in survey(session, Wish(spare=True)).orphans if one.do is not Do.STAY]
    except LedgerUnavailable:
        raise
    except CloudgpuError as fault:
        return (f"what is left over is not known: {fault.message}",)
    if not found:
        return ()
    costs = [one.cost.per_month for one in found]
    total = Money(sum(cost.nanos for cost in costs if cost is not None))
    more = f", and {costs.count(None)} without a known price" if None in costs else ""
    things = "1 thing is" if len(found) == 1 else f"{len(found)} things are"
    return (f"{things} left over, {total.text()} a month{more}: see cloudgpu orphans",)
