"""Compares the cloud's bill with the ledger: which of its rows are of which resource, what the gap is and why. Pure.

The gap of a resource is cut into reasons that add up to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction

from cloudgpu.core.billing.charges import MachineCharge, billed_span
from cloudgpu.core.billing.rules import PARTS_PER_NANO
from cloudgpu.core.model.instances import TAG_ID, TAG_LEDGER
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import Resource, Usage
from cloudgpu.core.reconciliation.focus_import import Record
from cloudgpu.core.values.money import HOUR_MICROS, NANOS_PER_USD
from cloudgpu.core.values.naming import tag_value


class Part(StrEnum):
    """The part of a bill that a charge belongs to, as far as both the ledger and the export can tell."""

    COMPUTE = "compute"
    STORAGE = "storage"
    ADDRESS = "address"
    EGRESS = "egress"
    TAX = "tax"
    CREDIT = "credit"
    OTHER = "other"


_PART_OF_RESOURCE = {Resource.INSTANCE: Part.COMPUTE, Resource.ADDRESS: Part.ADDRESS, Resource.TRAFFIC: Part.EGRESS}
_EGRESS = re.compile(r"data.?transfer|egress|bandwidth|network.*(internet|out)|bytes.?out", re.IGNORECASE)
_ADDRESS = re.compile(r"\bip(v4)?\b.*\baddress|public.?ipv4|external ip|elastic ip", re.IGNORECASE)
_STORAGE = re.compile(r"storage|\bdisks?\b|snapshot|provisioned space|volume|-mo(nth)?\b", re.IGNORECASE)
_SECONDS = {"hour": 3600, "hr": 3600, "h": 3600, "minute": 60, "second": 1, "s": 1}
_UNIT = re.compile(r"(?:(\d+) )?([a-z]+?)s?", re.IGNORECASE)


@dataclass(slots=True)
class ResourceTotal:
    """What the bill, or the ledger, charges for a resource: dollars by part, its time, and the machine's hours.

    `hours_known`: every row has a unit of time. `rows` counts the charges, `ids` are the resource's ids in them.
    """

    parts: dict[Part, Fraction] = field(default_factory=dict)
    begin: datetime | None = None
    end: datetime | None = None
    hours: Fraction = Fraction(0)
    hours_known: bool = True
    rows: int = 0
    list_cost: Fraction = Fraction(0)
    ids: dict[str, None] = field(default_factory=dict)

    @property
    def total(self) -> Fraction:
        """The sum in dollars."""
        return sum(self.parts.values(), Fraction(0))

    def of(self, part: Part) -> Fraction:
        """Return what it charges for one part, in dollars."""
        return self.parts.get(part, Fraction(0))

    def add(self, part: Part, usd: Fraction, begin: datetime, end: datetime, resource: str) -> None:
        """Add one charge."""
        self.parts[part] = self.of(part) + usd
        self.begin = begin if self.begin is None else min(self.begin, begin)
        self.end = end if self.end is None else max(self.end, end)
        self.rows += 1
        if resource:
            self.ids[resource] = None


@dataclass(slots=True)
class LedgerTotal(ResourceTotal):
    """What the ledger charges for a resource: also the range in dollars, why, and whether a price is missing."""

    low: Fraction = Fraction(0)
    high: Fraction = Fraction(0)
    unpriced: bool = False
    reasons: dict[str, None] = field(default_factory=dict)


class MachineIndex:
    """Finds the ledger's machine, or named resource, that a row of an export is about: by the cloud's id, else our tag.

    The id goes first: a named volume has the tag of the machine that it was made with.
    """

    def __init__(self, ledger: str, machines: Iterable[Machine], uses: Iterable[tuple[str, Usage]]) -> None:
        self._ledger = tag_value(ledger)
        self.machines = {machine.id: machine for machine in machines}
        self._by_id: dict[str, str | None] = {}
        for machine in self.machines.values():
            resources = [
                machine.provider_id,
                *(entry.id for entry in machine.retained),
                *(use.id for use in machine.open_usage),
            ]
            for resource in resources:
                self._register(resource, machine.id)
        for subject, use in uses:
            self._register(use.id, subject)

    def _register(self, resource_id: str | None, subject: str) -> None:
        for comparable_id in _comparable_ids(resource_id or ""):
            if self._by_id.setdefault(comparable_id, subject) != subject:
                self._by_id[comparable_id] = None  # two machines share it, so it identifies neither

    def of(self, record: Record) -> str | None:
        """Return the machine's id in the ledger; "" for one of another ledger, None where it is not known.

        For a row with our tag that the ledger does not have, it is the id in the tag.
        """
        ledger = record.tags.get(TAG_LEDGER)
        if ledger is not None and ledger != self._ledger:
            return ""
        found = (self._by_id.get(name) for name in _comparable_ids(record.resource))
        return next((machine_id for machine_id in found if machine_id), None) or record.tags.get(TAG_ID)


def _comparable_ids(resource_id: str) -> list[str]:
    """Return the forms of an id to compare: the whole, and its last part (of an ARN, a path, ours with the region)."""
    lower_case = resource_id.lower()
    return list(dict.fromkeys(name for name in (lower_case, re.split(r"[/:]", lower_case)[-1]) if name))


def part_of(record: Record) -> Part:
    """Return what a row of an export is for, by its category, its unit and the words of its description."""
    if record.category == "Tax":
        return Part.TAX
    if record.category == "Credit" or record.is_correction or record.billed < 0:
        return Part.CREDIT
    text = f"{record.service} {record.description}"
    if _EGRESS.search(text) and seconds_of(record) is None:
        return Part.EGRESS
    if _ADDRESS.search(text):
        return Part.ADDRESS
    if record.service_category == "Storage" or (_STORAGE.search(record.description) and seconds_of(record) is None):
        return Part.STORAGE
    is_compute = record.service_category in ("Compute", "") or "compute" in record.service.lower()
    return Part.COMPUTE if is_compute else Part.OTHER


def seconds_of(record: Record) -> Fraction | None:
    """Return for how long a row charges, None where its unit is not one of time.

    Google Cloud charges cores, memory and GPUs separately: their hours are not the machine's.
    """
    unit = _UNIT.fullmatch(record.unit)
    if record.quantity is None or unit is None or record.provider == "gcp":
        return None
    unit_seconds = _SECONDS.get(unit[2].lower())
    return None if unit_seconds is None else Fraction(record.quantity) * unit_seconds * int(unit[1] or 1)


def add_export_row(provider_total: ResourceTotal, record: Record, per_usd: Decimal) -> None:
    """Add a row of an export to the total of its resource; `per_usd` is how much of its currency a dollar is."""
    part = part_of(record)
    usd = in_dollars(record.billed, per_usd)
    provider_total.add(part, usd, record.begin, record.end, record.resource)
    if part is Part.COMPUTE:
        seconds = seconds_of(record)
        provider_total.hours += (seconds or 0) / Fraction(3600)
        provider_total.hours_known = provider_total.hours_known and seconds is not None
        provider_total.list_cost += usd if record.list_cost is None else in_dollars(record.list_cost, per_usd)


def add_charge(
    ledger_total: LedgerTotal, billed: MachineCharge, now: datetime, since: datetime, until: datetime
) -> None:
    """Add a charge of the ledger, within [`since`, `until`), to the total of its resource."""
    charge = billed.charge
    begin, end = billed_span(charge.usage, now)
    begin, end = max(begin, since), min(end, until)
    part = _PART_OF_RESOURCE.get(charge.usage.resource, Part.STORAGE)
    ledger_total.add(part, dollars(charge.amount), begin, end, charge.usage.id)
    ledger_total.low += dollars(charge.low)
    ledger_total.high += dollars(charge.high)
    ledger_total.unpriced = ledger_total.unpriced or bool(charge.unpriced_us)
    ledger_total.reasons |= dict.fromkeys(charge.reasons)
    if part is Part.COMPUTE and charge.high:
        ledger_total.hours += Fraction(charge.billed_us, HOUR_MICROS)


def dollars(amount_parts: int) -> Fraction:
    """Return in dollars an amount of the billing engine, which counts in `PARTS_PER_NANO`."""
    return Fraction(amount_parts, PARTS_PER_NANO * NANOS_PER_USD)


def in_dollars(amount: Decimal, per_usd: Decimal) -> Fraction:
    """Return an amount of another currency in dollars, exact."""
    return Fraction(amount) / Fraction(per_usd)


CENT = Fraction(1, 100)
PER_MILLE = Fraction(1, 1000)  # of the bill: amounts that differ by less, or by less than a cent, agree
USAGE_LAG = timedelta(hours=48)  # the clouds document that usage shows within a day, two at most


@dataclass(frozen=True, slots=True)
class GapReason:
    """A part of a gap: its kind in a word, its dollars (positive: the bill is higher), and a sentence why."""

    kind: str
    usd: Fraction
    why: str


def gap_reasons(
    ledger: LedgerTotal, bill: ResourceTotal, export_end: datetime | None, now: datetime
) -> list[GapReason]:
    """Return the reasons of a gap, the largest first; none where both agree to a cent or a thousandth.

    `export_end` is when the export's last charge ends. The parts add up to the gap, but for what is below half a cent.
    """
    gap = bill.total - ledger.total
    if abs(gap) <= max(CENT, abs(bill.total) * PER_MILLE):
        is_known = ledger.high or not ledger.unpriced
        return [] if is_known else [GapReason("no price here", gap, "nothing of it has a price in the ledger")]
    reasons = [reason for reason in _unsorted_reasons(ledger, bill, export_end, now) if abs(reason.usd) * 2 > CENT]
    reasons.sort(key=lambda reason: -abs(reason.usd))
    if ledger.low <= bill.total <= ledger.high and ledger.rows:
        why = "; ".join(ledger.reasons) or "the amount is a range"
        return [GapReason("range", gap, f"within what the ledger could not know: {why}")]
    return reasons


def _unsorted_reasons(
    ledger: LedgerTotal, bill: ResourceTotal, export_end: datetime | None, now: datetime
) -> Iterator[GapReason]:
    if not bill.rows:
        yield _missing_there(ledger, export_end, now)
        return
    if not ledger.rows:
        yield GapReason("missing here", bill.total, "the ledger has no charge of it in this period")
        return
    for part, why in _REASON_OF_PART.items():
        yield GapReason(str(part), bill.of(part) - ledger.of(part), why)
    yield from _compute_reasons(ledger, bill, export_end, now)


def _missing_there(ledger: LedgerTotal, export_end: datetime | None, now: datetime) -> GapReason:
    if (
        export_end is not None
        and ledger.begin is not None
        and ledger.begin > export_end - USAGE_LAG
        and now - export_end < 3 * USAGE_LAG
    ):
        return GapReason(
            "lag",
            -ledger.total,
            f"it began shortly before the export ends ({export_end:%Y-%m-%d %H:%M} UTC): rows come later",
        )
    why = "no row has its tag or its id: is the tag cloudgpu-id active for billing, and is this the right account?"
    return GapReason("missing there", -ledger.total, why)


def _compute_reasons(
    ledger: LedgerTotal, bill: ResourceTotal, export_end: datetime | None, now: datetime
) -> Iterator[GapReason]:
    """Cut the gap of the machine itself into what its hours and what their price make."""
    gap = bill.of(Part.COMPUTE) - ledger.of(Part.COMPUTE)
    if ledger.unpriced:
        yield GapReason("no price here", gap, "a part of it has no price in the ledger")
        return
    if not (bill.hours_known and bill.hours and ledger.hours):
        late_text = _is_late(ledger, bill, export_end, now)
        yield (
            GapReason("lag", gap, late_text)
            if late_text and gap < 0
            else GapReason("compute", gap, "its hours or its price differ")
        )
        return
    ledger_price = ledger.of(Part.COMPUTE) / ledger.hours
    gap_by_hours = (bill.hours - ledger.hours) * ledger_price
    late_text = _is_late(ledger, bill, export_end, now)
    hours_text = f"they charge {float(bill.hours):.2f} hours, the ledger {float(ledger.hours):.2f}"
    yield (
        GapReason("lag", gap_by_hours, late_text)
        if late_text and gap_by_hours < 0
        else GapReason("hours", gap_by_hours, hours_text)
    )
    paid_price, list_price = bill.of(Part.COMPUTE) / bill.hours, bill.list_cost / bill.hours
    prices_text = f"they charge ${float(paid_price):.4f} an hour, the ledger ${float(ledger_price):.4f}"
    if paid_price < list_price and abs(list_price - ledger_price) <= ledger_price * PER_MILLE:
        yield GapReason("discount", gap - gap_by_hours, f"{prices_text}: theirs is below the list price")
    else:
        yield GapReason(
            "price", gap - gap_by_hours, f"{prices_text}: the price changed, or the ledger's was not theirs"
        )


def _is_late(ledger: ResourceTotal, bill: ResourceTotal, export_end: datetime | None, now: datetime) -> str:
    """Return that rows are still to come, empty where they should be there."""
    if ledger.end is None or bill.end is None or export_end is None or now - export_end > 3 * USAGE_LAG:
        return ""
    if bill.end < ledger.end and bill.end > export_end - USAGE_LAG:
        return f"its rows end at {bill.end:%Y-%m-%d %H:%M} UTC, the ledger's do not: rows come later"
    return ""


_REASON_OF_PART = {
    Part.TAX: "tax, which the ledger does not know",
    Part.CREDIT: "credits, refunds, corrections of earlier bills and sustained use, which the ledger does not have",
    Part.EGRESS: "bytes out: the machine counts all that it sends, the cloud charges what leaves the region",
    Part.STORAGE: "disks, snapshots and images: only the cloud knows how much of a snapshot is billed",
    Part.ADDRESS: "public addresses",
    Part.OTHER: "services that the ledger does not follow",
}
