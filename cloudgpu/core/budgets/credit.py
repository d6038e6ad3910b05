"""How long the prepaid credit of an account lasts for what runs there.

An account whose credit cannot be read is unknown, which is not zero: nothing here evaluates it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from fractions import Fraction
from typing import NamedTuple

from cloudgpu.core.alerts.alerts import Finding
from cloudgpu.core.billing.rates import MONTH_H
from cloudgpu.core.model.account import PrepaidCredit
from cloudgpu.core.model.machine import Machine, may_be_running, sync_subject_of
from cloudgpu.core.model.records import CreditRecord
from cloudgpu.core.values.money import HOUR_MICROS, Money, usd
from cloudgpu.core.values.times import duration_text, from_iso, iso
from cloudgpu.errors import BudgetRefused

WARN_BEFORE = timedelta(hours=24)  # before the credit is used up, its payer is alerted
TOPIC = "credit"
MAX_CREDITS = 8  # accounts in the event of a reaper run
MAX_DURATION = timedelta(days=36525)  # longer durations are cut, so that their end is a valid date


class CreditReading(NamedTuple):
    """The credit of an account as a reaper run read it, and its hourly spend: the provider's figure or the ledger's.

    `account` is its name on the computer that read it, `scope` the subject of its sync events. `elsewhere` is the
    part of the spend that is not in the ledger.
    """

    scope: str
    account: str
    provider: str
    credit: PrepaidCredit
    hourly: Money
    elsewhere: Money = Money(0)

    def record(self) -> CreditRecord:
        """Return it as a ledger event stores it."""
        return {
            "scope": self.scope,
            "account": self.account,
            "provider": self.provider,
            "left": self.credit.remaining.nanos,
            "as_of": iso(self.credit.as_of),
            "hourly": self.hourly.nanos,
            "elsewhere": self.elsewhere.nanos,
            "page": self.credit.payment_page,
            "threshold": self.credit.threshold.nanos,
        }


def credit_from_record(record: CreditRecord) -> CreditReading:
    """Return the reading that a ledger event stores so."""
    hourly = Money(record["hourly"])
    credit = PrepaidCredit(
        Money(record["left"]), from_iso(record["as_of"]), hourly, record["page"], Money(record["threshold"])
    )
    return CreditReading(
        record["scope"], record["account"], record["provider"], credit, hourly, Money(record["elsewhere"])
    )


def ledger_hourly_cost(machines: Iterable[Machine]) -> Money:
    """Return what machines of one account cost an hour as far as the ledger knows: those that run, and their disks.

    A price of a month counts as 1/730 of it an hour, rounded up. One without a known price counts nothing.
    """
    return Money(sum(map(_hourly, machines)))


def _hourly(machine: Machine) -> int:
    if machine.terminated_at is not None:
        return 0
    may_run = may_be_running(machine)
    compute = machine.price.nanos_per_hour if may_run and machine.price is not None else 0
    costs = [one for one in machine.attached_costs or () if (one.running if may_run else one.kept)]
    return compute + sum(-(-(cost.nanos_per_month or 0) // MONTH_H) for cost in costs)


def hourly_spend(credit: PrepaidCredit, machines: Iterable[Machine]) -> Money:
    """Return what an account spends an hour: the higher of the provider's figure and the ledger's."""
    hourly = ledger_hourly_cost(machines)
    return hourly if credit.spent_per_hour is None else max(hourly, credit.spent_per_hour)


def hourly_spend_now(credit: CreditReading, machines: Iterable[Machine]) -> Money:
    """Return the hourly spend of an account with the machines that the ledger has there now."""
    return (
        ledger_hourly_cost(machine for machine in machines if sync_subject_of(machine) == credit.scope)
        + credit.elsewhere
    )


def credit_left(credit: PrepaidCredit, hourly: Money, now: datetime) -> Money:
    """Return what is left above the deletion's threshold at `now`, at least 0, where `hourly` was spent since."""
    spent = hourly.scaled(Fraction(max(now - credit.as_of, timedelta()) // timedelta(microseconds=1), HOUR_MICROS))
    return max(credit.remaining - credit.threshold - spent, Money(0))


def time_left(left: Money, hourly: Money) -> timedelta | None:
    """Return how long `left` lasts at `hourly`, rounded down to a second, at most `MAX_DURATION`; None for ever."""
    if hourly.nanos <= 0:
        return None
    return timedelta(seconds=min(left.nanos * 3600 // hourly.nanos, MAX_DURATION // timedelta(seconds=1)))


class CreditFit(NamedTuple):
    """Whether an account's credit lasts for a launch to its lease's end, together with what runs there already.

    `needed` is for both until then, `left` what there is, `hourly` what both cost an hour, `page` where to pay in.
    """

    account: str
    left: Money
    needed: Money
    hourly: Money
    page: str

    @property
    def fits(self) -> bool:
        """Whether the credit is enough."""
        return self.needed <= self.left

    @property
    def lasts(self) -> timedelta | None:
        """How long the credit lasts for both; None for ever."""
        return time_left(self.left, self.hourly)

    @property
    def missing(self) -> Money:
        """How much has to be paid in, 0 for nothing."""
        return max(self.needed - self.left, Money(0))


def credit_fit(
    account: str, credit: PrepaidCredit, present_hourly: Money, planned_hourly: Money, lease: timedelta, now: datetime
) -> CreditFit:
    """Return how a launch fits.

    `planned_hourly` is what it costs an hour, `present_hourly` what the account spends an hour already.
    What runs already is counted to the end of that lease, too: it may be renewed, and all is lost with the credit.
    """
    hourly = present_hourly + planned_hourly
    needed = hourly.scaled(Fraction(lease // timedelta(microseconds=1), HOUR_MICROS))
    return CreditFit(account, credit_left(credit, present_hourly, now), needed, hourly, credit.payment_page)


def credit_refusal(
    fit: CreditFit, name: str, lease: timedelta, what: str = "lease", less: str = "choose a shorter --lease"
) -> BudgetRefused:
    """Return the error that the credit of an account does not last for `name` to the end of its lease.

    `what` names whatever ends then if not the lease, `less` is a clause that says how to request less.
    """
    return BudgetRefused(
        f"The credit of account {fit.account}, {fit.left.text()}, covers {name} and what runs there for "
        f"{duration_text(fit.lasts or timedelta())}, not for the {duration_text(lease)} of its {what}: "
        f"{fit.missing.text()} is missing.",
        field="credit",
        value=fit.account,
        next=f"Pay in at {fit.page}, {less}, or end something of that account.",
        sums={"left": usd(fit.left), "needed": usd(fit.needed), "missing": usd(fit.missing)},
    )


def credit_finding(credit: CreditReading, now: datetime) -> Finding | None:
    """Return that an account's data is about to be deleted, where its credit ends within a day; None otherwise."""
    lasts = time_left(credit_left(credit.credit, credit.hourly, now), credit.hourly)
    if lasts is None or lasts > WARN_BEFORE:
        return None
    return Finding(
        key=f"{TOPIC}:{credit.scope}",
        kind="credit ends",
        title=f"The credit of {credit.account} ends in {duration_text(lasts)}",
        text=f"At zero {credit.provider} deletes the data of this account: {duration_text(lasts)} left at "
        f"{credit.hourly.text(4)} an hour. Pay in at {credit.credit.payment_page}",
        facts={"account": credit.account, "amount": credit.credit.remaining.text()},
        urgent=True,
    )


def latest_credits(read: Iterable[CreditReading]) -> tuple[CreditReading, ...]:
    """Return the latest reading of each account, by its scope, the newest first; at most `MAX_CREDITS`."""
    by_scope = {credit.scope: credit for credit in sorted(read, key=lambda one: one.credit.as_of)}
    return tuple(sorted(by_scope.values(), key=lambda one: one.credit.as_of, reverse=True)[:MAX_CREDITS])
