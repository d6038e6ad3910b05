"""Amounts, times and names of a report as text: in one currency and time zone, without invisible characters."""

from __future__ import annotations

from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

from cloudgpu.core.values.currency import Currency
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import counted
from cloudgpu.core.values.times import from_iso
from cloudgpu.views.report.svg import day_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudgpu.views.documents.money.report import ReportDocument, ReportJob
    from cloudgpu.views.documents.parts import ExchangeRate

SMALL_TOTAL = Decimal(10)  # dollars in all: below it amounts are shown with two more digits, as `cost` does
NOT_KNOWN = "not known"
SMALLEST_SHOWN = 0.01  # a smaller number that is not zero is shown as `<0.01`
_DAY_LENGTH = len("2026-11-20")
_MONTH_LENGTH = len("2026-11")


def escape_invisible(text: str) -> str:
    """Return a text with invisible and text-direction characters as their code, like `[U+202E]`."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else " " if character in "\t\n\r" else f"[U+{ord(character):04X}]"
        for character in text
    )


class Amounts:
    """Shows decimal USD text in the document's currency; a missing amount is `not known`, never zero.

    If the total is below ten dollars, amounts below that have two more digits.
    """

    def __init__(self, document: ReportDocument) -> None:
        exchange_rate = document["currency"]
        self.code = "USD" if exchange_rate is None else exchange_rate["code"]
        self.per_usd = 1.0 if exchange_rate is None else float(exchange_rate["per_usd"])
        self._currency = currency_of(exchange_rate)
        self._extra_digits = 2 if Decimal(document["total"]["high_usd"] or 0) < SMALL_TOTAL else 0
        self._texts: dict[tuple[str, int | None], str] = {}

    def __call__(self, usd: str | None, extra_digits: int | None = None) -> str:
        """Return an amount for a table, without its currency."""
        if usd is None:
            return NOT_KNOWN
        key = usd, extra_digits
        if key not in self._texts:
            amount = Decimal(usd)
            digits = (
                extra_digits if extra_digits is not None else self._extra_digits if abs(amount) < SMALL_TOTAL else 0
            )
            self._texts[key] = self._currency.text(Money.usd(amount), digits)
        return self._texts[key]

    def prose(self, usd: str | None, extra_digits: int | None = None) -> str:
        """Return an amount for a sentence: `$1,234.50`, `1,710,000 KRW`."""
        text = self(usd, extra_digits if usd is None or Decimal(usd) else 0)
        if usd is None or self.code != "USD":
            return text if usd is None else f"{text} {self.code}"
        sign, text = ("-", text[1:]) if text.startswith("-") else ("", text)
        return f"{sign}<${text[1:]}" if text.startswith("<") else f"{sign}${text}"

    def to_float(self, usd: str | None) -> float:
        """Return an amount in the currency for a chart; a missing one is drawn as 0."""
        return float(usd) * self.per_usd if usd is not None else 0.0

    @property
    def unit(self) -> str:
        """The currency of the amounts, in words."""
        return "US dollars" if self.code == "USD" else self.code

    @property
    def rate(self) -> str:
        """The currency of the amounts, with the rate and its day."""
        return self.unit if self.code == "USD" else f"{self.code}, at {self._currency}"


def currency_of(rate: ExchangeRate | None) -> Currency:
    """Return the currency that a document has its amounts in; None: US dollars."""
    if rate is None:
        return Currency("USD", Decimal(1), date.min)
    return Currency(rate["code"], Decimal(rate["per_usd"]), date.fromisoformat(rate["as_of"]), rate["source"])


class ZoneFormat:
    """Shows times of a document in its time zone."""

    def __init__(self, tz: str) -> None:
        self.zone: tzinfo = ZoneInfo(tz)

    def __call__(self, at: str | None) -> str:
        """Return a time to the minute, or a day; `never` for None."""
        if at is None:
            return "never"
        if len(at) <= _DAY_LENGTH:
            return self.day(at)
        local = from_iso(at).astimezone(self.zone)
        return f"{day_text(local.date())}, {local:%H:%M}"

    def begin(self, at: str) -> str:
        """Return the begin of a period: only the day if it is midnight."""
        local = from_iso(at).astimezone(self.zone)
        return day_text(local.date()) if local.time() == time.min else self(at)

    def day(self, at: str | None) -> str:
        """Return the day of a time, or of a day's or month's text."""
        return "never" if at is None else day_text(self.date(at))

    def last_day(self, until: str) -> str:
        """Return the last day of a period that ends at `until`."""
        return day_text(self.last_date(until))

    def last_date(self, until: str) -> date:
        """Return the last day of a period that ends at `until`."""
        return (from_iso(until) - timedelta(microseconds=1)).astimezone(self.zone).date()

    def date(self, at: str) -> date:
        """Return the day in the zone of a time; a month stands for its first day."""
        if len(at) == _MONTH_LENGTH:
            at = f"{at}-01"
        return date.fromisoformat(at) if len(at) == _DAY_LENGTH else from_iso(at).astimezone(self.zone).date()


def hours_text(seconds: float) -> str:
    """Return seconds as hours: two digits below ten, one below a hundred; `<0.01` for less than that."""
    hours = seconds / 3600
    if 0 < hours < SMALLEST_SHOWN:
        return f"<{SMALLEST_SHOWN}"
    places = 2 if 0 < hours < 9.995 else 1 if 0 < hours < 99.95 else 0  # noqa: PLR2004
    return f"{hours:,.{places}f}"


def number_text(value: float | str | None) -> str:
    """Return a number or decimal text with at most two digits after the point; `not known` for None."""
    if value is None:
        return NOT_KNOWN
    number = Decimal(value)
    if 0 < number < Decimal(f"{SMALLEST_SHOWN}"):
        return f"<{SMALLEST_SHOWN}"
    return f"{number:,.2f}".rstrip("0").rstrip(".")


class JobRow(NamedTuple):
    """One row of the table of jobs."""

    name: str
    state: str
    seconds: int
    usd: str | None


_NOT_ONE_JOB = {
    "shared": "several jobs at once",
    "idle": "idle between jobs",
    "": "without a job",
}


def job_rows(jobs: Sequence[ReportJob], max_jobs: int) -> list[JobRow]:
    """Return the rows of the table of jobs: `max_jobs` jobs, and the others as one row. They add up to the total."""
    jobs_run = [job for job in jobs if job["state"] is not None]
    other_jobs = jobs_run[max_jobs:]
    rows = [
        JobRow(job["name"], (job["state"] or "").replace("_", " "), job["billed_s"], job["usd"])
        for job in jobs_run[:max_jobs]
    ]
    if other_jobs:
        known_usd = [Decimal(job["usd"]) for job in other_jobs if job["usd"] is not None]
        other_jobs_usd = f"{sum(known_usd, Decimal()):f}" if known_usd else None
        rows.append(
            JobRow(counted(len(other_jobs), "other"), "", sum(job["billed_s"] for job in other_jobs), other_jobs_usd)
        )
    not_one_job = (job for job in jobs if job["state"] is None)
    return [*rows, *(JobRow(_NOT_ONE_JOB[job["id"]], "", job["billed_s"], job["usd"]) for job in not_one_job)]
