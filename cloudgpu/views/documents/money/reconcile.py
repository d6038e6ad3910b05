"""Documents of `export` and `cost reconcile`."""

from typing import TypedDict

from cloudgpu.views.documents.parts import CountedPeriod, Time, Usd


class ExportDocument(CountedPeriod):
    """A bill that was written.

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
    """Lines without a price: what they cost is in no sum."""
    estimates: int
    """Lines whose amount may turn out to be another."""
    usd: Usd
    """The sum of the lines, the ledger's total of the period."""
    low_usd: Usd
    """The least that it can be."""
    high_usd: Usd
    """The most."""


class GapReason(TypedDict):
    """Why both differ."""

    kind: str
    """One of [these](../focus.md#why-they-differ)."""
    usd: Usd
    """How much of the gap."""
    why: str
    """A sentence."""


class BothParts(TypedDict):
    """Sums by what they are for: `compute`, `storage`, `address`, `egress`, `tax`, `credit`, `other`."""

    ledger: dict[str, Usd]
    """In the ledger."""
    bill: dict[str, Usd]
    """In the export."""


class ReconciledResource(TypedDict):
    """One resource of the comparison."""

    id: str
    """Its cloudgpu-id."""
    name: str | None
    """Its name; null where this ledger does not know it."""
    provider: str | None
    """Its provider."""
    resource_ids: list[str]
    """The ids of its parts, on both sides."""
    ledger_usd: Usd
    """What the ledger says; what has no price is not in it."""
    ledger_low_usd: Usd
    """The least that it can be."""
    ledger_high_usd: Usd
    """The most."""
    unpriced: bool
    """A part has no price in the ledger."""
    bill_usd: Usd
    """What the export says."""
    discrepancy_usd: Usd
    """Theirs less ours."""
    likely_reason: str
    """The largest reason's kind, or `agrees`."""
    reasons: list[GapReason]
    """The largest first; they add up to the gap."""
    parts: BothParts
    """`ledger` and `bill`: dollars for `compute`, `storage`, `address`, `egress`, `tax`, `credit`, `other`."""


class OtherLedgers(TypedDict):
    """What another ledger launched."""

    rows: int
    """How many rows."""
    usd: Usd
    """Their sum."""


class Unmatched(OtherLedgers):
    """What is of nothing in this ledger."""

    parts: dict[str, Usd]
    """The same by what it is for: `compute`, `storage`, `address`, `egress`, `tax`, `credit`, `other`."""


class ReconcileHead(TypedDict):
    """What was compared with the ledger."""

    file: str
    """The export that was read."""
    rows: int
    """Rows that were compared."""
    providers: list[str]
    """Whose rows they are."""
    accounts_left_out: list[str]
    """Accounts that the export has no rows of, while it has those of others: what the ledger has there is left out."""
    since: Time | None
    """The begin of the period: of the first charge for use; null without one."""
    until: Time | None
    """Its end."""
    as_of: Time
    """Up to when what runs is counted."""
    rates: list[str]
    """The rates, with their dates, at which other currencies were turned into dollars."""


class ReconcileDocument(ReconcileHead):
    """The ledger compared with the cloud's own bill."""

    resources: list[ReconciledResource]
    """Machines and retained resources, the largest difference first."""
    ledger_usd: Usd
    """What the ledger says of them."""
    bill_usd: Usd
    """What the export says."""
    discrepancy_usd: Usd
    """Theirs less ours."""
    other_ledgers: OtherLedgers
    """`rows` and `usd` of what another ledger launched."""
    unmatched: Unmatched
    """`rows`, `usd` and, by what they are for, `parts` of what is of nothing in this ledger."""
