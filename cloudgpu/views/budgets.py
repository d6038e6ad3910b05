"""Budgets and how they stand, as the plain values that `-o json` prints: money as decimal text in US dollars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.core.budgets.credit import hourly_now, lasts_for, left_at
from cloudgpu.core.values.money import Money, usd
from cloudgpu.core.values.times import iso

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import datetime, timedelta

    from cloudgpu.core.budgets.budget import Budget
    from cloudgpu.core.budgets.credit import KnownCredit
    from cloudgpu.core.budgets.enforcement import Stop
    from cloudgpu.core.budgets.status import BudgetState
    from cloudgpu.core.model.machine import Machine
    from cloudgpu.views.documents.money.budgets import Budget as BudgetValue, BudgetStatus, BudgetStop, CreditDocument

_VERBS = {"warn": "warned", "stop": "stopped", "park": "parked", "terminate": "terminated, its disk deleted"}


def budget_value(budget: Budget) -> BudgetValue:
    """Return a budget as plain values."""
    paid = budget.paid_in
    return {
        "name": budget.name,
        "limit_usd": usd(budget.limit),
        "amount": None if paid is None else f"{paid.amount:f}",
        "currency": "USD" if paid is None else paid.currency.code,
        "per_usd": None if paid is None else f"{paid.currency.per_usd:f}",
        "rate_as_of": None if paid is None else paid.currency.as_of.isoformat(),
        "period": budget.span.text,
        "tz": budget.tz,
        "scope": budget.scope.text,
        "thresholds": list(budget.thresholds),
        "forecast": budget.forecast,
        "actions": sorted(map(str, budget.actions)),
        "allow_override": budget.allow_override,
        "file": budget.file or None,
    }


def credit_value(known: KnownCredit, hourly: Money, now: datetime) -> CreditDocument:
    """Return what was left in an account that is paid in advance, and when that ends at so much an hour now.

    What was spent since it was read is counted at the higher of that rate and the rate of then.
    """
    left, credit = left_at(known.credit, max(known.hourly, hourly), now), known.credit
    lasts = lasts_for(left, hourly)
    return {
        "account": known.account,
        "provider": known.provider,
        "left_usd": usd(credit.left),
        "usd_per_hour": usd(hourly),
        "as_of": iso(credit.as_of),
        "ends_at": None if lasts is None else iso(now + lasts),
        "page": credit.page,
    }


def credits_value(read: Iterable[KnownCredit], machines: Collection[Machine], now: datetime) -> list[CreditDocument]:
    """Return what was left in each account when it was read, and how long that lasts with what runs there now."""
    return [credit_value(credit, hourly_now(credit, machines), now) for credit in read]


def status_value(state: BudgetState, every: timedelta) -> BudgetStatus:
    """Return a budget and how it stands; checks are `every` so long."""
    return {
        **budget_value(state.budget),
        "since": None if state.period is None else iso(state.period.begin),
        "until": None if state.period is None else iso(state.period.end),
        "spent_usd": usd(state.spent),
        "spent_percent": state.percent(state.spent),
        "committed_usd": usd(state.committed),
        "remaining_usd": usd(state.left),
        "forecast_usd": usd(state.forecast),
        "burn_usd_per_hour": usd(state.burn),
        "exhausted_in_s": None if state.empty_in is None else int(state.empty_in.total_seconds()),
        "overshoot_usd": usd(state.overshoot(every)),
        "exhausted": state.is_exceeded,
        "unpriced": list(state.unpriced),
        "assumed": list(state.assumed),
    }


def stop_value(stop: Stop) -> BudgetStop:
    """Return what a passed budget would do with a machine."""
    return {"machine": stop.machine, "name": stop.name, "budget": stop.budget, "do": str(stop.do), "why": stop.why}


def stop_sentences(stops: Sequence[BudgetStop]) -> list[str]:
    """Return the sentences of what passed budgets would do, in their order."""
    return [f"{stop['name']} would be {_VERBS[stop['do']]}: {stop['why']}" for stop in stops]
