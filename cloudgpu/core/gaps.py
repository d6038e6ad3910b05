"""Why the cloud's bill and ours differ: the gap of a resource, cut into reasons that add up to it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from cloudgpu.core.reconcile import Ours, Part, Side

CENT = Fraction(1, 100)
PER_MILLE = Fraction(1, 1000)
LAG = timedelta(hours=48)  # the clouds' words: usage shows within a day, two at most


@dataclass(frozen=True, slots=True)
class Gap:
    """A part of a gap: one word for why, how many dollars, and a sentence. Positive: theirs is more."""

    kind: str
    usd: Fraction
    why: str


def gaps(ours: Ours, theirs: Side, last: datetime | None, now: datetime) -> list[Gap]:
    """Return the reasons of a gap, the largest first; none where both agree to a cent or a thousandth.

    `last` is when the export's last charge ends. The parts add up to the gap, but for what is below half a cent.
    """
    gap = theirs.total - ours.total
    if abs(gap) <= max(CENT, abs(theirs.total) * PER_MILLE):
        return []
    found = [one for one in _parts(ours, theirs, last, now) if abs(one.usd) * 2 > CENT]
    found.sort(key=lambda one: -abs(one.usd))
    if ours.low <= theirs.total <= ours.high and ours.rows:
        why = "; ".join(ours.reasons) or "the amount is a range"
        return [Gap("range", gap, f"within what the ledger could not know: {why}")]
    return found


def _parts(ours: Ours, theirs: Side, last: datetime | None, now: datetime) -> Iterator[Gap]:
    if not theirs.rows:
        yield _missing_there(ours, last, now)
        return
    if not ours.rows:
        yield Gap("missing here", theirs.total, "the ledger has no charge of it in this period")
        return
    for part, why in _WHY.items():
        yield Gap(str(part), theirs.of(part) - ours.of(part), why)
    yield from _compute(ours, theirs, last, now)


def _missing_there(ours: Ours, last: datetime | None, now: datetime) -> Gap:
    if last is not None and ours.begin is not None and ours.begin > last - LAG and now - last < 3 * LAG:
        return Gap("lag", -ours.total, f"it began shortly before the export ends ({_day(last)}): rows come later")
    why = "no row has its tag or its id: is the tag cloudgpu-id active for billing, and is this the right account?"
    return Gap("missing there", -ours.total, why)


def _compute(ours: Ours, theirs: Side, last: datetime | None, now: datetime) -> Iterator[Gap]:
    """Cut the gap of the machine itself into what its hours and what their price make."""
    gap = theirs.of(Part.COMPUTE) - ours.of(Part.COMPUTE)
    if ours.unpriced:
        yield Gap("no price here", gap, "a part of it has no price in the ledger")
        return
    if not (theirs.hours_known and theirs.hours and ours.hours):
        late = _is_late(ours, theirs, last, now)
        yield Gap("lag", gap, late) if late and gap < 0 else Gap("compute", gap, "its hours or its price differ")
        return
    price = ours.of(Part.COMPUTE) / ours.hours
    by_hours = (theirs.hours - ours.hours) * price
    yield _hours_gap(ours, theirs, by_hours, _is_late(ours, theirs, last, now))
    paid, listed = theirs.of(Part.COMPUTE) / theirs.hours, theirs.list_cost / theirs.hours
    says = f"they charge ${float(paid):.4f} an hour, the ledger ${float(price):.4f}"
    if paid < listed and abs(listed - price) <= price * PER_MILLE:
        yield Gap("discount", gap - by_hours, f"{says}: theirs is below the list price")
    else:
        yield Gap("price", gap - by_hours, f"{says}: the price changed, or the ledger's was not theirs")


def _hours_gap(ours: Ours, theirs: Side, usd: Fraction, late: str) -> Gap:
    if usd < 0 and late:
        return Gap("lag", usd, late)
    return Gap("hours", usd, f"they charge {float(theirs.hours):.2f} hours, the ledger {float(ours.hours):.2f}")


def _is_late(ours: Side, theirs: Side, last: datetime | None, now: datetime) -> str:
    """Return that rows are still to come, empty where they should be there."""
    if ours.end is None or theirs.end is None or last is None or now - last > 3 * LAG:
        return ""
    if theirs.end < ours.end and theirs.end > last - LAG:
        return f"its rows end at {theirs.end:%Y-%m-%d %H:%M} UTC, the ledger's go on: rows come later"
    return ""


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


_WHY = {
    Part.TAX: "tax, which the ledger does not know",
    Part.CREDIT: "credits, refunds and sustained use, which the ledger does not take off",
    Part.EGRESS: "bytes out: the machine counts all that it sends, the cloud charges what leaves the region",
    Part.STORAGE: "disks, snapshots and images: only the cloud knows how much of a snapshot is billed",
    Part.ADDRESS: "public addresses",
    Part.OTHER: "services that the ledger does not follow",
}
