"""Budgets and their status, as the plain values that `-o json` prints: money as decimal text in US dollars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.core.values.money import usd
from cloudgpu.core.values.times import iso

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from cloudgpu.core.budgets.budget import Budget
    from cloudgpu.core.budgets.enforcement import PlannedStop
    from cloudgpu.core.budgets.status import BudgetState
    from cloudgpu.views.documents.money.budgets import Budget as BudgetDocument, BudgetStatus, BudgetStop

_ACTION_TEXTS = {"warn": "warned", "stop": "stopped", "park": "parked", "terminate": "terminated, its disk deleted"}


def budget_document(budget: Budget) -> BudgetDocument:
    """Return a budget as plain values."""
    quoted_limit = budget.quoted_limit
    return {
        "name": budget.name,
        "limit_usd": usd(budget.limit),
        "amount": None if quoted_limit is None else f"{quoted_limit.value:f}",
        "currency": "USD" if quoted_limit is None else quoted_limit.currency.code,
        "per_usd": None if quoted_limit is None else f"{quoted_limit.currency.per_usd:f}",
        "rate_as_of": None if quoted_limit is None else quoted_limit.currency.as_of.isoformat(),
        "period": budget.period.text,
        "tz": budget.tz,
        "scope": budget.scope.text,
        "thresholds": list(budget.thresholds),
        "forecast": budget.forecast,
        "actions": sorted(map(str, budget.actions)),
        "allow_override": budget.allow_override,
        "file": budget.file or None,
    }


def status_document(state: BudgetState, check_interval: timedelta) -> BudgetStatus:
    """Return a budget and its status; `check_interval` is the time from one check to the next."""
    return {
        **budget_document(state.budget),
        "since": None if state.period is None else iso(state.period.begin),
        "until": None if state.period is None else iso(state.period.end),
        "spent_usd": usd(state.spent),
        "spent_percent": state.percent(state.spent),
        "committed_usd": usd(state.committed),
        "remaining_usd": usd(state.left),
        "forecast_usd": usd(state.forecast),
        "burn_usd_per_hour": usd(state.burn),
        "exhausted_in_s": None if state.exhausted_in is None else int(state.exhausted_in.total_seconds()),
        "overshoot_usd": usd(state.overshoot(check_interval)),
        "exhausted": state.is_exceeded,
        "unpriced": list(state.machines_without_price),
        "assumed": list(state.price_assumptions),
    }


def stop_document(stop: PlannedStop) -> BudgetStop:
    """Return what an exceeded budget would do with a machine."""
    return {
        "machine": stop.machine_id,
        "name": stop.name,
        "budget": stop.budget,
        "do": str(stop.action),
        "why": stop.why,
    }


def stop_sentences(stops: Sequence[BudgetStop]) -> list[str]:
    """Return one sentence for each machine that an exceeded budget would act on, in their order."""
    return [f"{stop['name']} would be {_ACTION_TEXTS[stop['do']]}: {stop['why']}" for stop in stops]
