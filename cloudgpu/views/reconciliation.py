"""The comparison with a cloud's own bill as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu.core.model.machine import Machine
from cloudgpu.core.reconciliation.reconcile import GapReason, LedgerTotal, ResourceTotal
from cloudgpu.core.values.money import NANO, Money, usd

if TYPE_CHECKING:
    from cloudgpu.views.documents.money.reconcile import ReconcileDocument, ReconciledResource, ReconcileHead

AGREES = "agrees"


def reconciled_value(
    head: ReconcileHead,
    machines: Mapping[str, Machine],
    ours: Mapping[str, LedgerTotal],
    theirs: Mapping[str, ResourceTotal],
    reasons_by_id: Mapping[str, list[GapReason]],
    others: tuple[ResourceTotal, ResourceTotal],
) -> ReconcileDocument:
    """Return the document: money as decimal text in USD; resources by the size of their gap.

    `others` are what the export has of other ledgers' resources and what is of nobody here. `ledger_usd` of a resource
    without a price lacks what that costs; `unpriced` says so.
    """
    values = [
        _resource(one, machines.get(one), ours.get(one, LedgerTotal()), theirs.get(one, ResourceTotal()), reasons)
        for one, reasons in reasons_by_id.items()
    ]
    values.sort(key=lambda value: (-abs(float(value["discrepancy_usd"])), value["id"]))
    ledger_sum, bill_sum = sum((one.total for one in ours.values()), Fraction(0)), _sum(theirs.values())
    other_ledgers, unmatched = others
    return {
        **head,
        "resources": values,
        "ledger_usd": _usd(ledger_sum),
        "bill_usd": _usd(bill_sum),
        "discrepancy_usd": _usd(bill_sum - ledger_sum),
        "other_ledgers": {"rows": other_ledgers.rows, "usd": _usd(other_ledgers.total)},
        "unmatched": {"rows": unmatched.rows, "usd": _usd(unmatched.total), "parts": _parts_value(unmatched)},
    }


def _resource(
    id: str,  # noqa: A002
    machine: Machine | None,
    ours: LedgerTotal,
    theirs: ResourceTotal,
    reasons: list[GapReason],
) -> ReconciledResource:
    return {
        "id": id,
        "name": machine.name if machine else None,
        "provider": machine.provider if machine else None,
        "resource_ids": list({**ours.ids, **theirs.ids}),
        "ledger_usd": _usd(ours.total),
        "ledger_low_usd": _usd(ours.low),
        "ledger_high_usd": _usd(ours.high),
        "unpriced": ours.unpriced,
        "bill_usd": _usd(theirs.total),
        "discrepancy_usd": _usd(theirs.total - ours.total),
        "likely_reason": reasons[0].kind if reasons else AGREES,
        "reasons": [{"kind": reason.kind, "usd": _usd(reason.usd), "why": reason.why} for reason in reasons],
        "parts": {"ledger": _parts_value(ours), "bill": _parts_value(theirs)},
    }


def _parts_value(side: ResourceTotal) -> dict[str, str]:
    return {str(part): _usd(amount) for part, amount in side.parts.items()}


def _sum(totals: Iterable[ResourceTotal]) -> Fraction:
    return sum((total.total for total in totals), Fraction(0))


def _usd(amount: Fraction) -> str:
    return usd(Money(round(amount * NANO)))
