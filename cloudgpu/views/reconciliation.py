"""The comparison with a cloud's own bill as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu.core.model.machine import Machine
from cloudgpu.core.reconciliation.reconcile import GapReason, LedgerTotal, ResourceTotal
from cloudgpu.core.values.money import NANOS_PER_USD, Money, usd

if TYPE_CHECKING:
    from cloudgpu.views.documents.money.reconcile import ReconcileDocument, ReconciledResource, ReconcileHead

AGREES = "agrees"


def reconciled_document(
    head: ReconcileHead,
    machines: Mapping[str, Machine],
    ledger_totals: Mapping[str, LedgerTotal],
    bill_totals: Mapping[str, ResourceTotal],
    reasons_by_id: Mapping[str, list[GapReason]],
    others: tuple[ResourceTotal, ResourceTotal],
) -> ReconcileDocument:
    """Return the document: money as decimal text in USD; resources with the largest discrepancies first.

    `head` says what was compared: the bill's file, its rows, accounts and period.
    `others` are the bill's totals for resources of other ledgers, and for rows that match no ledger. `ledger_usd` of a
    resource is without its parts that have no known price; `unpriced` names them.
    """
    resources = [
        _resource(
            id_,
            machines.get(id_),
            ledger_totals.get(id_, LedgerTotal()),
            bill_totals.get(id_, ResourceTotal()),
            reasons,
        )
        for id_, reasons in reasons_by_id.items()
    ]
    resources.sort(key=lambda resource: (-abs(float(resource["discrepancy_usd"])), resource["id"]))
    ledger_sum = sum((total.total for total in ledger_totals.values()), Fraction(0))
    bill_sum = sum((total.total for total in bill_totals.values()), Fraction(0))
    other_ledgers, unmatched = others
    return {
        **head,
        "resources": resources,
        "ledger_usd": _usd(ledger_sum),
        "bill_usd": _usd(bill_sum),
        "discrepancy_usd": _usd(bill_sum - ledger_sum),
        "other_ledgers": {"rows": other_ledgers.rows, "usd": _usd(other_ledgers.total)},
        "unmatched": {"rows": unmatched.rows, "usd": _usd(unmatched.total), "parts": _parts_document(unmatched)},
    }


def _resource(
    id: str,  # noqa: A002
    machine: Machine | None,
    ledger: LedgerTotal,
    bill: ResourceTotal,
    reasons: list[GapReason],
) -> ReconciledResource:
    return {
        "id": id,
        "name": machine.name if machine else None,
        "provider": machine.provider if machine else None,
        "resource_ids": list({**ledger.ids, **bill.ids}),
        "ledger_usd": _usd(ledger.total),
        "ledger_low_usd": _usd(ledger.low),
        "ledger_high_usd": _usd(ledger.high),
        "unpriced": ledger.unpriced,
        "bill_usd": _usd(bill.total),
        "discrepancy_usd": _usd(bill.total - ledger.total),
        "likely_reason": reasons[0].kind if reasons else AGREES,
        "reasons": [{"kind": reason.kind, "usd": _usd(reason.usd), "why": reason.why} for reason in reasons],
        "parts": {"ledger": _parts_document(ledger), "bill": _parts_document(bill)},
    }


def _parts_document(total: ResourceTotal) -> dict[str, str]:
    return {str(part): _usd(amount) for part, amount in total.parts.items()}


def _usd(amount: Fraction) -> str:
    return usd(Money(round(amount * NANOS_PER_USD)))
