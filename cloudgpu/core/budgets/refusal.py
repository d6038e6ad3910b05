"""The error of a budget that refuses a request: which one, the sum and its parts, and what would fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cloudgpu.core.budgets.admission import AdmissionRequest, BudgetVerdict, PeriodSums
from cloudgpu.core.budgets.budget import Budget
from cloudgpu.core.budgets.commitments import compute_nanos, needs_reaper
from cloudgpu.core.budgets.enforcement import highest_admitted_price, longest_admitted
from cloudgpu.core.model.facts import HourlyPrice
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.model.offers import Offer, price_to_json
from cloudgpu.core.values.money import Money, usd
from cloudgpu.core.values.naming import first_few
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.errors import BudgetRefused


@dataclass(frozen=True, slots=True)
class Remedy:
    """How to request less: `shorter_command` returns the command for a given, earlier renew-until.

    `present_renew_until` is that of a machine that runs already, None for a launch. `offers` are all that match the
    request, the cheapest first.
    """

    shorter_command: Callable[[datetime], str]
    present_renew_until: datetime | None = None
    offers: Sequence[Offer] = ()


def refusal(request: AdmissionRequest, remedy: Remedy) -> BudgetRefused:
    """Return the error of a refused request: it names the most exceeded budget, the sum, and what would fit."""
    refusals = request.admission().refusals
    unpriced = next((one for one in refusals if one.machines_without_price), None)
    if unpriced is not None:
        return _unpriced_error(unpriced, request)
    worst_verdict = max(refusals, key=lambda verdict: (verdict.tightest.total - verdict.budget.limit).nanos)
    until, price = longest_admitted(request, remedy.present_renew_until), highest_admitted_price(request)
    tightest, budget = worst_verdict.tightest, worst_verdict.budget
    sums = {"limit": budget.limit, "spent": tightest.spent, "running": tightest.running, "wanted": tightest.requested}
    sums_usd = {name: usd(amount) for name, amount in (sums | {"total": tightest.total}).items()}
    sums_usd |= {"renew_until": iso(until)} if until else {}
    sums_usd |= {"usd_per_hour": usd(price)} if price else {}
    return BudgetRefused(
        _refusal_text(worst_verdict, request, len(refusals)),
        field="budget",
        value=budget.name,
        next=" ".join(
            [*_remedies(request, remedy, until, price), *_other_account(remedy, refusals), _override(refusals)]
        ),
        sums=sums_usd,
    )


def _refusal_text(worst: BudgetVerdict, request: AdmissionRequest, refusal_count: int) -> str:
    tightest, budget = worst.tightest, worst.budget
    name, requested_name = _covered_name(worst, request)
    until = from_iso(not_none(request.subject.renew_until))
    subject = (
        f"Budgets {budget.name} and {refusal_count - 1} more do" if refusal_count > 1 else f"Budget {budget.name} does"
    )
    assumed = (
        f" Counted without a known price: {'; '.join(worst.price_assumptions[:3])}." if worst.price_assumptions else ""
    )
    return (
        f"{subject} not allow {requested_name} until {until:%Y-%m-%d %H:%M} UTC: {tightest.spent.text()} spent + "
        f"{tightest.running.text()} for running machines, waiting jobs and retained resources + "
        f"{tightest.requested.text()} for {name} = {tightest.total.text()} "
        f"{period_text(budget, tightest)}, above the limit of {limit_text(budget)}."
        f"{assumed}{_counted_price_text(request)}{_NEEDS_REAPER * needs_reaper(request.subject, request.prices)}"
    )


def _covered_name(verdict: BudgetVerdict, request: AdmissionRequest) -> tuple[str, str]:
    """Return the name of the requested machines that a budget covers, and the same with the cluster that they are of.

    A budget may cover only some nodes of a cluster: the cost that it counts is theirs.
    """
    if len(verdict.covered) > len(request.further_nodes):
        return request.name, request.name
    names = first_few([node.name for node in verdict.covered], _MAX_NAMED)
    return names, f"{names} (of {request.name})"


_NEEDS_REAPER = (
    " Only cloudgpu reap or watch ends such a machine, and no run has succeeded for 26 hours: it is counted as one "
    "that runs on after its renew-until."
)
_MAX_NAMED = 5  # machines without a price
_INSTALL_REAPER = "Once the reaper runs, it counts only to its renew-until: cloudgpu cron install."


def _counted_price_text(request: AdmissionRequest) -> str:
    """Return at which price a spot machine is counted: it is not the present spot price."""
    nanos = compute_nanos(request.subject, request.prices)
    if request.subject.market != "spot" or nanos is None:
        return ""
    price = Money(nanos).text(4)
    if request.subject.max_price:
        return f" It is counted at its --max-price, {price} an hour."
    return f" A spot machine is counted at the on-demand price, {price} an hour; --max-price limits that."


def period_text(budget: Budget, period_sums: PeriodSums) -> str:
    """Return which period of a budget is meant, in words, in its own zone."""
    if budget.period.days:
        return f"in the {budget.period.days} days up to {period_sums.until:%Y-%m-%d %H:%M} UTC"
    if period_sums.since is None:
        return "in all"
    begins = period_sums.since.astimezone(budget.zone)
    texts = {
        "month": f"in {begins:%Y-%m}",
        "week": f"in the week from {begins:%Y-%m-%d}",
        "day": f"on {begins:%Y-%m-%d}",
    }
    zone = "" if budget.tz == "UTC" else f" ({budget.tz})"
    return texts[budget.period.kind] + zone


def limit_text(budget: Budget) -> str:
    """Return the limit, in the currency that it was set in too, with the rate and its day."""
    if budget.quoted_limit is None:
        return budget.limit.text()
    amount, currency = budget.quoted_limit.value, budget.quoted_limit.currency
    return f"{budget.limit.text()} ({amount:,f} {currency.code} at {currency.per_usd:f} of {currency.as_of})"


def span_text(duration: timedelta) -> str:
    """Return a duration in days, hours and whole minutes, as options take it: `1d3h20m`."""
    minutes = duration // timedelta(minutes=1)
    parts = ((minutes // 1440, "d"), (minutes // 60 % 24, "h"), (minutes % 60, "m"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0m"


def _remedies(request: AdmissionRequest, remedy: Remedy, until: datetime | None, price: Money | None) -> list[str]:
    remedies = []
    fits = request.fitting_count()
    if fits:
        remedies.append(f"{fits} of the {len(request.further_nodes) + 1} machines would fit: --nodes {fits}.")
    if until is not None:
        remedies.append(f"It fits until {until:%Y-%m-%d %H:%M} UTC: {remedy.shorter_command(until)}.")
    offer = None if price is None else _cheaper_offer(request, remedy, price)
    if offer is not None:
        offered = offer.configuration
        place = f"{offered.instance_type} in {offered.zone or offered.region} ({str(offered.market).replace('_', '-')})"
        remedies.append(f"For the whole time, {place} at {offer.price.per_hour.text(4)} an hour fits.")
    elif price is not None:
        remedies.append(f"For the whole time, a machine at up to {price.text(4)} an hour fits.")
    if needs_reaper(request.subject, request.prices):
        remedies.append(_INSTALL_REAPER)
    return remedies or ["Not even a minute fits: end a machine (cloudgpu ls), or raise the budget."]


def shorter_launch(now: datetime, lease: timedelta, command: str) -> Callable[[datetime], str]:
    """Return a function that returns the command for an earlier renew-until, with a lease no longer than that."""

    def options_text(until: datetime) -> str:
        span = span_text(until - now)
        return f"{command} {f'--lease {span} ' if lease > until - now else ''}--renew-until {span}"

    return options_text


def _cheaper_offer(request: AdmissionRequest, remedy: Remedy, price: Money) -> Offer | None:
    """Return the first offer, as a budget counts it, that costs no more an hour."""
    for offer in remedy.offers:
        nanos = compute_nanos(_at_offer(request.subject, offer), request.prices)
        if nanos is not None and nanos <= price.nanos:
            return offer
    return None


def _other_account(remedy: Remedy, refusals: Sequence[BudgetVerdict]) -> list[str]:
    """Return the account of an offer that none of these budgets covers, where offers are of several accounts."""
    for offer in remedy.offers:
        account = offer.configuration.account
        if not any(
            verdict.budget.scope.covers(_at_offer(node, offer)) for verdict in refusals for node in verdict.covered
        ):
            return [f"It does not cover account {account}: --account {account}."]
    return []


def _at_offer(machine: Machine, offer: Offer) -> Machine:
    """Return a requested machine, as it would be at another offer."""
    configuration = offer.configuration
    return machine._replace(
        provider=configuration.provider,
        account=configuration.account,
        region=configuration.region,
        market=str(configuration.market),
        price=HourlyPrice.of(price_to_json(offer.price)),
        on_demand=None,
        instance_type=configuration.instance_type,
    )


def _override(refusals: Sequence[BudgetVerdict]) -> str:
    not_overridable = [verdict.budget.name for verdict in refusals if not verdict.budget.allow_override]
    if not_overridable:
        return f"{', '.join(not_overridable)} cannot be overridden."
    return 'Or exceed it, and have the reason recorded: --override "REASON".'


def _unpriced_error(verdict: BudgetVerdict, request: AdmissionRequest) -> BudgetRefused:
    unpriced = verdict.machines_without_price[:_MAX_NAMED]
    names, requested = ", ".join(unpriced), {one.name for one in (request.subject, *request.further_nodes)}
    is_requested_machine = not requested.isdisjoint(verdict.machines_without_price)
    what = (
        "its price is not known" if is_requested_machine else f"the price of {names}, which runs already, is not known"
    )
    return BudgetRefused(
        f"Budget {verdict.budget.name} does not allow {request.name}: {what}.",
        field="budget",
        value=verdict.budget.name,
        next=" ".join(
            [
                "Give its highest price: --max-price."
                if is_requested_machine
                else f"End it: cloudgpu down {' '.join(verdict.names_to_end[:_MAX_NAMED])}.",
                _override([verdict]),
            ]
        ),
    )
