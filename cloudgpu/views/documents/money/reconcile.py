"""Documents of `export` and `cost reconcile`."""

from typing import TypedDict

from cloudgpu.views.documents.parts import CostBounds, CountedPeriod, Time, Usd


class ExportDocument(CountedPeriod, CostBounds):
    """An export that was written. The amount is the sum of its lines, the ledger's total of the period.

    With `--out FILE`; without it, stdout has the export itself. What `--format json` writes is in [FOCUS and other
    exports](../focus.md#plain-csv-and-json).
    """

    file: str | None
    """The file that was written; null from a program that gave none."""
    format: str
    """`focus`, `csv` or `json`."""
    rows: int
    """Lines that were written."""
    unpriced: int
    """Lines without a price: their cost is in no sum."""
    estimates: int
    """Lines whose amount may still change."""


class GapReason(TypedDict):
    """A reason for a discrepancy."""

    kind: str
    """One of [these](../focus.md#why-they-differ)."""
    usd: Usd
    """The part of the discrepancy that it explains."""
    why: str
    """A sentence."""


class PartTotals(TypedDict):
    """Amounts by service category: `compute`, `storage`, `address`, `egress`, `tax`, `credit`, `other`."""

    ledger: dict[str, Usd]
    """In the ledger."""
    bill: dict[str, Usd]
    """In the cloud's bill."""


class ReconciledResource(TypedDict):
    """One machine or retained resource of the comparison."""

    id: str
    """Its cloudgpu-id."""
    name: str | None
    """Its name; null where this ledger does not know it."""
    provider: str | None
    """Its provider."""
    resource_ids: list[str]
    """The ids of its parts, on both sides."""
    ledger_usd: Usd
    """The ledger's amount, without parts that have no price."""
    ledger_low_usd: Usd
    """The least that it can be."""
    ledger_high_usd: Usd
    """The most."""
    unpriced: bool
    """A part has no price in the ledger."""
    bill_usd: Usd
    """The amount in the cloud's bill."""
    discrepancy_usd: Usd
    """`bill_usd` minus `ledger_usd`."""
    likely_reason: str
    """The largest reason's kind, or `agrees`."""
    reasons: list[GapReason]
    """The largest first; they add up to the discrepancy."""
    parts: PartTotals
    """`ledger` and `bill`: dollars for `compute`, `storage`, `address`, `egress`, `tax`, `credit`, `other`."""


class OtherLedgers(TypedDict):
    """Charges for what another ledger launched."""

    rows: int
    """How many rows."""
    usd: Usd
    """Their sum."""


class Unmatched(OtherLedgers):
    """Charges that match nothing in this ledger."""

    parts: dict[str, Usd]
    """The same by service category: `compute`, `storage`, `address`, `egress`, `tax`, `credit`, `other`."""


class ReconcileHead(TypedDict):
    """What was compared with the ledger."""

    file: str
    """The export that was read."""
    rows: int
    """Rows that were compared."""
    providers: list[str]
    """The providers of these rows."""
    accounts_left_out: list[str]
    """Accounts that the bill has no rows of, while it has rows of others: the ledger's amounts there are left out."""
    since: Time | None
    """The start of the period: that of the first usage charge; null without one."""
    until: Time | None
    """Its end."""
    as_of: Time
    """The time up to which running machines are counted."""
    rates: list[str]
    """The rates, with their dates, at which other currencies were converted into dollars."""


class ReconcileDocument(ReconcileHead):
    """The ledger compared with the cloud's own bill."""

    resources: list[ReconciledResource]
    """Machines and retained resources, the largest discrepancy first."""
    ledger_usd: Usd
    """The ledger's total."""
    bill_usd: Usd
    """The amount in the cloud's bill."""
    discrepancy_usd: Usd
    """`bill_usd` minus `ledger_usd`."""
    other_ledgers: OtherLedgers
    """`rows` and `usd` of charges for what another ledger launched."""
    unmatched: Unmatched
    """`rows`, `usd` and, by service category, `parts` of charges that match nothing in this ledger."""
