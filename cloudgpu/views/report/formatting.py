"""Amounts, times and names as a report has them for people: in one currency and zone, with nothing unseen in them."""

from __future__ import annotations

from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

from cloudgpu.core.values.currency import Currency
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso
from cloudgpu.views.report.svg import day_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudgpu.views.documents.money.report import ReportDocument, ReportJob
    from cloudgpu.views.documents.parts import ExchangeRate

SMALL_TOTAL = Decimal(10)  # dollars in all: below it amounts are shown with two more digits, as `cost` does
NOT_KNOWN = "not known"
MIN = 0.01  # a number that is smaller, and not zero, is said to be so
_DAY = len("2026-11-20")
_MONTH = len("2026-11")


def visible(text: str) -> str:
    """Return a text in which nothing hides: what has no shape, or turns the line around, as its code `[U+202E]`."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else " " if one in "\t\n\r" else f"[U+{ord(one):04X}]" for one in text)


class Amounts:
    """Shows decimal USD text in the document's currency; a missing amount is no zero.

    Of a small bill all amounts below ten dollars have two more digits.
    """

    def __init__(self, document: ReportDocument) -> None:
        rate = document["currency"]
        self.code = "USD" if rate is None else rate["code"]
        self.per_usd = 1.0 if rate is None else float(rate["per_usd"])
        self._currency = currency_of(rate)
        self._more = 2 if Decimal(document["total"]["high_usd"] or 0) < SMALL_TOTAL else 0
        self._known: dict[tuple[str, int | None], str] = {}

    def __call__(self, usd: str | None, more: int | None = None) -> str:
        """Return an amount as a table has it, without its currency."""
        if usd is None:
            return NOT_KNOWN
        key = usd, more
        if key not in self._known:
            amount = Decimal(usd)
            digits = more if more is not None else self._more if abs(amount) < SMALL_TOTAL else 0
            self._known[key] = self._currency.text(Money.usd(amount), digits)
        return self._known[key]

    def prose(self, usd: str | None, more: int | None = None) -> str:
        """Return an amount as a sentence has it: `$1,234.50`, `1,710,000 KRW`."""
        text = self(usd, more if usd is None or Decimal(usd) else 0)
        if usd is None or self.code != "USD":
            return text if usd is None else f"{text} {self.code}"
        sign, text = ("-", text[1:]) if text.startswith("-") else ("", text)
        return f"{sign}<${text[1:]}" if text.startswith("<") else f"{sign}${text}"

    def to_float(self, usd: str | None) -> float:
        """Return an amount in the currency for a chart; nothing is drawn of a missing one."""
        return float(usd) * self.per_usd if usd is not None else 0.0

    @property
    def unit(self) -> str:
        """What the amounts are in."""
        return "US dollars" if self.code == "USD" else self.code

    @property
    def rate(self) -> str:
        """What the amounts are in, with the rate and its day."""
        return self.unit if self.code == "USD" else f"{self.code}, at {self._currency}"


def currency_of(rate: ExchangeRate | None) -> Currency:
    """Return the currency that a document has its amounts in; None: US dollars."""
    if rate is None:
        return Currency("USD", Decimal(1), date.min)
    return Currency(rate["code"], Decimal(rate["per_usd"]), date.fromisoformat(rate["as_of"]), rate["source"])


class Clock:
    """Shows times of a document in its time zone."""

    def __init__(self, tz: str) -> None:
        self.zone: tzinfo = ZoneInfo(tz)

    def __call__(self, at: str | None) -> str:
        """Return a time to the minute, a day as a day; `never` for none."""
        if at is None:
            return "never"
        if len(at) <= _DAY:
            return self.day(at)
        found = from_iso(at).astimezone(self.zone)
        return f"{day_text(found.date())}, {found:%H:%M}"

    def begin(self, at: str) -> str:
        """Return a time at which something begins: a day where it begins with that."""
        found = from_iso(at).astimezone(self.zone)
        return day_text(found.date()) if found.time() == time.min else self(at)

    def day(self, at: str | None) -> str:
        """Return the day of a time, or of a day's or month's text."""
        return "never" if at is None else day_text(self.date(at))

    def last_day(self, until: str) -> str:
        """Return the day that ends at a time, or in which it lies."""
        return day_text(self.ended(until))

    def ended(self, until: str) -> date:
        """Return the day that ends at a time, or in which it lies."""
        return (from_iso(until) - timedelta(microseconds=1)).astimezone(self.zone).date()

    def date(self, at: str) -> date:
        """Return the day in the zone of a time; a month stands for its first day."""
        if len(at) == _MONTH:
            at = f"{at}-01"
        return date.fromisoformat(at) if len(at) == _DAY else from_iso(at).astimezone(self.zone).date()


def hours_text(seconds: float) -> str:
    """Return seconds as hours: two digits below ten, one below a hundred; never zero for what is none."""
    hours = seconds / 3600
    if 0 < hours < MIN:
        return f"<{MIN}"
    places = 2 if 0 < hours < 9.995 else 1 if 0 < hours < 99.95 else 0  # noqa: PLR2004
    return f"{hours:,.{places}f}"


def number_text(value: float | str | None) -> str:
    """Return a number or decimal text with at most two digits after the point; what is not known is said so."""
    if value is None:
        return NOT_KNOWN
    number = Decimal(value)
    if 0 < number < Decimal(f"{MIN}"):
        return f"<{MIN}"
    return f"{number:,.2f}".rstrip("0").rstrip(".")


class JobRow(NamedTuple):
    """One row of the table of jobs."""

    name: str
    state: str
    seconds: int
    usd: str


_NO_JOBS = {
    "shared": "several jobs at once",
    "idle": "idle between jobs",
    "": "without a job",
}


def job_rows(jobs: Sequence[ReportJob], most: int) -> list[JobRow]:
    """Return the rows of the table of jobs, `most` jobs one by one and the others as one: they add up to the total."""
    ran = [job for job in jobs if job["state"] is not None]
    others = ran[most:]
    found = [JobRow(one["name"], _state(one), one["billed_s"], one["usd"]) for one in ran[:most]]
    if others:
        whole = sum((Decimal(one["usd"]) for one in others), Decimal())
        found.append(JobRow(f"{len(others)} others", "", sum(one["billed_s"] for one in others), f"{whole:f}"))
    rest = (job for job in jobs if job["state"] is None)
    return [*found, *(JobRow(_NO_JOBS[one["id"]], "", one["billed_s"], one["usd"]) for one in rest)]


def _state(job: ReportJob) -> str:
    return (job["state"] or "").replace("_", " ")
