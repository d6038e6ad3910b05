"""A budget's status: amounts spent and committed, their rate, when it is exhausted, and the alerts about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from cloudgpu.core.alerts.alerts import Finding
from cloudgpu.core.billing.charges import money
from cloudgpu.core.billing.rates import time_until_limit
from cloudgpu.core.billing.rules import FAR_FUTURE_US, PARTS_PER_NANO, to_us
from cloudgpu.core.budgets.admission import BudgetSums, period_sums
from cloudgpu.core.budgets.budget import Action, Budget, current_period
from cloudgpu.core.budgets.commitments import Commitments
from cloudgpu.core.values.money import HOUR_MICROS, Money
from cloudgpu.core.values.times import Period

TOPIC = "budget"


@dataclass(frozen=True, slots=True)
class BudgetState:
    """The status of a budget now.

    `spent` is the upper bound for `period` (None: all time). `committed` is the cost of running machines to their
    renew-until and of retained resources to the period's end, at the prices that budgets count, in the most expensive
    period. `forecast` is the sum at the period's end at today's prices, `burn` is the cost of an hour at those,
    `counted_burn` at the counted prices. `exhausted_in` is how long the rest lasts at `burn`; None: beyond the end of
    the period (of a rolling budget: for ever). `price_assumptions` says which prices are not known.
    """

    budget: Budget
    period: Period | None
    spent: Money
    committed: Money
    forecast: Money
    burn: Money
    counted_burn: Money
    exhausted_in: timedelta | None
    machines_without_price: tuple[str, ...] = ()
    price_assumptions: tuple[str, ...] = ()

    @property
    def left(self) -> Money:
        """What is not spent; below zero where it is exceeded."""
        return self.budget.limit - self.spent

    @property
    def is_exceeded(self) -> bool:
        """Whether all of it is spent."""
        return self.spent >= self.budget.limit

    def percent(self, amount: Money) -> int:
        """Return which part of the limit an amount is, in whole percent, rounded down."""
        return 100 * amount.nanos // self.budget.limit.nanos

    def overshoot(self, interval: timedelta) -> Money:
        """Return by how much a budget can be exceeded between two checks: `interval` times the burn rate."""
        return Money(-(-self.counted_burn.nanos * (interval // timedelta(microseconds=1)) // HOUR_MICROS))


def status_of(counted_sums: BudgetSums, todays_sums: BudgetSums, now: datetime) -> BudgetState:
    """Return a budget's status by its sums at the counted prices and at today's."""
    budget, now_us = counted_sums.budget, to_us(now)
    period = current_period(budget, now)
    begin, end = (to_us(period.begin), to_us(period.end)) if period else (0, FAR_FUTURE_US)
    spent = counted_sums.ended_total + counted_sums.spent_within(begin, FAR_FUTURE_US if budget.period.days else end)
    burn = todays_sums.hourly_burn(now_us)
    remaining, period_end = (
        budget.limit.nanos * PARTS_PER_NANO - spent,
        period if budget.period.kind != "total" else None,
    )
    return BudgetState(
        budget=budget,
        period=period,
        spent=money(spent),
        committed=max((sums.running for sums in period_sums(counted_sums, Commitments(), now)), default=Money(0)),
        forecast=money(spent + _remaining_committed(todays_sums, period, now_us)),
        burn=money(burn),
        counted_burn=money(counted_sums.hourly_burn(now_us)),
        exhausted_in=_rolling_exhausted_in(counted_sums, burn, now_us)
        if budget.period.days
        else _exhausted_in(remaining, burn, period_end, now),
        machines_without_price=tuple(counted_sums.machines_without_price),
        price_assumptions=tuple(counted_sums.price_assumptions),
    )


def _remaining_committed(sums: BudgetSums, period: Period | None, now: int) -> int:
    """Return the committed cost of a period: machines to their renew-until, retained resources to its end."""
    end = to_us(period.end) if period and to_us(period.end) > now else max([now, *sums.run_ends()])
    return sums.committed_within(now, end, now, end)


def _rolling_exhausted_in(sums: BudgetSums, burn: int, now: int) -> timedelta | None:
    """Return how long until a rolling budget is exhausted; None if never, as old spend drops out of its window."""
    window, limit = sums.budget.period.window // timedelta(microseconds=1), sums.budget.limit.nanos * PARTS_PER_NANO
    lasts_us = time_until_limit(sums.spent_intervals(), burn // HOUR_MICROS, window, now, limit)
    return None if lasts_us is None else timedelta(seconds=lasts_us // 10**6)


def _exhausted_in(left: int, burn: int, period: Period | None, now: datetime) -> timedelta | None:
    if left <= 0:
        return timedelta(0)
    if not burn:
        return None
    seconds = left * 3600 // burn
    if seconds > timedelta.max.total_seconds() // 2:
        return None
    lasts = timedelta(seconds=seconds)
    return lasts if period is None or lasts < period.end - now else None


def findings(budget_states: Iterable[BudgetState]) -> Iterator[Finding]:
    """Yield each threshold that was reached, and each forecast; of budgets that notify alone."""
    for state in budget_states:
        if Action.NOTIFY not in state.budget.actions:
            continue
        for percent in state.budget.thresholds:
            if state.spent.nanos * 100 >= state.budget.limit.nanos * percent:
                yield _threshold(state, percent)
        forecast_percent = state.budget.forecast
        if forecast_percent is not None and state.forecast.nanos * 100 >= state.budget.limit.nanos * forecast_percent:
            yield _forecast(state, forecast_percent)


def _threshold(state: BudgetState, percent: int) -> Finding:
    name, limit = state.budget.name, state.budget.limit.text()
    return Finding(
        key=f"{TOPIC}:{name}:threshold:{percent}{_period_key(state)}",
        kind="budget threshold",
        title=f"{percent}% of the budget {name} is spent: {state.spent.text()} of {limit}",
        text=f"There is one alert at {percent}%. Run: cloudgpu budget check {name}",
        facts=_facts(state),
        urgent=percent >= 100,  # noqa: PLR2004  (all of it)
    )


def _forecast(state: BudgetState, percent: int) -> Finding:
    name, limit = state.budget.name, state.budget.limit.text()
    until = f" by {state.period.end:%Y-%m-%d}" if state.period and not state.budget.period.days else ""
    return Finding(
        key=f"{TOPIC}:{name}:forecast:{percent}{_period_key(state)}",
        kind="budget forecast",
        title=f"The budget {name} is expected to reach {state.forecast.text()}{until}, "
        f"{state.percent(state.forecast)}% of {limit}",
        text="This assumes that running machines stay up until renew-until, at current prices. Run: cloudgpu ls",
        facts=_facts(state),
    )


def _period_key(state: BudgetState) -> str:
    """Return which period an alert is about: a new one clears it, also where nobody checked before it was spent."""
    if state.period is None or state.budget.period.days:
        return ""
    return f":{state.period.begin.astimezone(state.budget.zone):%Y-%m-%d}"


def _facts(state: BudgetState) -> dict[str, str]:
    budget = state.budget
    return {
        "limit": budget.limit.text(),
        "period": budget.period.text,
        "scope": budget.scope.text,
        "spent": state.spent.text(),
        "promised": state.committed.text(),
        "burn": f"{state.burn.text(4)} an hour",
    }
