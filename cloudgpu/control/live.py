"""Plans of the live check: a small machine, and one with a GPU where it is asked for; what they cost at most.

Nothing of any one provider's is used but the names of small machines: the same check serves all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from cloudgpu.control.accounts import account_of
from cloudgpu.control.prepare import Prepared, prepare
from cloudgpu.control.session import Session
from cloudgpu.control.trial import LEASE
from cloudgpu.control.wishes import gpu_wish
from cloudgpu.control.words import Wish
from cloudgpu.core.billing.rates import MONTH_H
from cloudgpu.core.launch.plan import HOUR, run_cost
from cloudgpu.core.model.offers import Want
from cloudgpu.core.values.money import ZERO, Money
from cloudgpu.core.values.times import epoch
from cloudgpu.errors import InvalidRequest, NoCapacity

# The cheapest current machine with 2 GB, in the order of trying; elsewhere the cheapest of all.
SMALL: Mapping[str, Sequence[str]] = {
    "aws": ("t3.small", "t3a.small", "t2.small"),
    "azure": ("Standard_B1ms", "Standard_B2s"),
    "gcp": ("e2-small", "e2-medium"),
}
_ELSE_ANY = ("azure", "gcp")  # where a small one may have no price that is known: then the cheapest of all, too


def planned(
    session: Session,
    *,
    provider: str | None = None,
    account: str | None = None,
    gpu: str | None = None,
    region: str | None = None,
) -> list[Prepared]:
    """Return the plans: a small machine without a GPU where there is one, and one with `gpu` where it is asked for.

    Asks providers what they have; launches and writes nothing. Raises what `prepare` raises.
    """
    wish = Wish(
        Want(region=region), spot=False, provider=provider, account=account, template="bare", lease=LEASE,
        renew_until=LEASE, project="doctor",
    )  # fmt: skip
    kind = session.provider(account_of(session, account=account, provider=provider)).kind
    small = _small(session, wish, SMALL.get(kind, ()), or_any=kind in _ELSE_ANY)
    if gpu is None:
        return [small]
    model, count = gpu_wish(gpu)
    with_gpu = replace(wish, want=replace(wish.want, gpu=model, gpu_count=count or 1))
    return [small, _prepared(session, with_gpu, "gpu")]


def _small(session: Session, wish: Wish, types: Sequence[str], *, or_any: bool) -> Prepared:
    for number, one in enumerate(types, 1):
        try:
            return _prepared(session, replace(wish, want=replace(wish.want, instance_type=one)), "cpu")
        except (NoCapacity, InvalidRequest):  # a region may not have the type
            if number == len(types) and not or_any:
                raise
    return _prepared(session, wish, "cpu")


def _prepared(session: Session, wish: Wish, which: str) -> Prepared:
    """Return the plan under a key of this check's own: it launches one machine, once, and never finds an older one.

    Of one type alone, the cheapest that fits: whatever zone has it, the check costs no more than was agreed to.
    """
    wish = replace(wish, key=f"doctor-{which}-{epoch(session.clock())}")
    found = prepare(session, wish)
    types = {offer.available.instance_type for offer in found.offers}
    if len(types) == 1:
        return found
    return prepare(
        session, replace(wish, want=replace(wish.want, instance_type=found.offers[0].available.instance_type))
    )


def ceiling(plans: Sequence[Prepared]) -> tuple[Money, bool]:
    """Return the most that these machines can cost, disks and addresses included; and whether a price is not known.

    Each machine for both its leases (of the launch, and of the start) at the dearest offer, what lies beside it too.
    """
    total, whole = ZERO, True
    for prepared in plans:
        total += run_cost(prepared.plan.dearest, 2 * LEASE)
        for extra in prepared.plan.extras:
            whole = whole and extra.per_month is not None
            total += (extra.per_month or ZERO).scaled(Fraction(2 * LEASE / HOUR) / MONTH_H)
    return total, not whole
