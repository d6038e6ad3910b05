"""What offers of Lambda cost, and machines: each what Lambda tells with it, whatever its type costs by now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cloudgpu.core.model.offers import Available, Basis, Price
from cloudgpu.providers.lambdalabs import machines
from cloudgpu.providers.lambdalabs.offers import SOURCE, per_hour

if TYPE_CHECKING:
    from cloudgpu.core.values.money import Money
    from cloudgpu.providers.lambdalabs.client import Lambda

OWN_SOURCE = "Lambda Cloud's own word of this machine"


def prices(lam: Lambda, items: Sequence[Available]) -> list[Price | None]:
    """Return one price per item, in order: of a machine its own, of an offer that of its type, the same in all regions.

    One call for the machines that were not looked at yet, and one for the types where they are asked for.
    """
    if any(item.machine is not None and item.machine not in lam.paid for item in items):
        machines.listed(lam)
    return [_price(lam, item) for item in items]


def _price(lam: Lambda, item: Available) -> Price | None:
    own = lam.paid.get(item.machine or "")
    costs, source = (own, OWN_SOURCE) if own is not None else (_of_type(lam, item.instance_type), SOURCE)
    return None if costs is None else Price(costs, source, lam.clock(), Basis.ASKED)


def _of_type(lam: Lambda, name: str) -> Money | None:
    found = lam.types().get(name) or {}
    return per_hour(found.get("instance_type") or {})
