"""Whether budgets admit a request, given what was spent and what is committed, period by period."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain

from cloudgpu.core.billing.charges import money
from cloudgpu.core.billing.rates import billed_intervals, flow_intervals, from_us, most_expensive_window
from cloudgpu.core.billing.rules import FAR_FUTURE_US, PARTS_PER_NANO, RateInterval, intervals_cost, to_us
from cloudgpu.core.budgets.budget import Budget, current_period, earliest_relevant
from cloudgpu.core.budgets.commitments import Commitment, Commitments, Prices, commitments_of, with_price
from cloudgpu.core.budgets.exposure import Exposure, exact_cost
from cloudgpu.core.model.machine import Machine, command_name, existing_volumes
from cloudgpu.core.model.usage import Usage
from cloudgpu.core.values.money import HOUR_MICROS, Money
from cloudgpu.core.values.times import Period, periods

BilledUsages = Iterable[tuple[str, Usage | list[RateInterval]]]  # (machine id, a usage or its rate intervals)
EndedUsages = Callable[[datetime | None], BilledUsages]  # the usages that ended since a time (None: all)


@dataclass(slots=True)
class BudgetSums:
    """The sums of a budget: what was billed in its period, and what runs already will cost.

    `machines_without_price` are names, the keys of `names_to_end` what `down` takes for those of them that run already
    (a node's cluster); the keys of `price_assumptions` are sentences on prices that are assumed.
    `since` is when its period begins, in microseconds since 1970. Of a budget without a period, `ended_total` is what
    the ended usages with a stored sum have cost at most, in exact parts. Costs of exposures are flows, (unit, begin,
    end) -> nano-dollars per unit (`rates.unit_of`), in the past and in the future: there a begin of None is now, an
    end of None the end of the forecast. `planned_end` is the latest of all machines (`Commitments.planned_end`).
    """

    budget: Budget
    since: int = 0
    ended_total: int = 0
    spent: list[RateInterval] = field(default_factory=list)
    past_flows: dict[tuple[int, int, int], int] = field(default_factory=dict)
    commitments: list[Commitment] = field(default_factory=list)
    future_flows: dict[tuple[int, int | None, int | None], int] = field(default_factory=dict)
    planned_end: int = 0
    machines_without_price: list[str] = field(default_factory=list)
    names_to_end: dict[str, None] = field(default_factory=dict)
    price_assumptions: dict[str, None] = field(default_factory=dict)

    def spent_within(self, begin: int, end: int) -> int:
        """Return what was billed within [begin, end), without `ended_total`, in exact parts."""
        past_cost = sum([
            nanos * exact_cost(unit, max(begin, first), min(end, last))
            for (unit, first, last), nanos in self.past_flows.items()
        ])  # fmt: skip
        return past_cost + intervals_cost(self.spent, begin, end)

    def committed_within(self, begin: int, end: int, now: int, horizon: int) -> int:
        """Return what runs already will cost within [begin, end); what has no end counts up to `horizon`."""
        future_cost = sum([
            nanos * exact_cost(unit, max(begin, first), min(end, last))
            for unit, first, last, nanos in self._future_flows(now, horizon)
        ])  # fmt: skip
        return future_cost + sum(intervals_cost(item.intervals(now, horizon), begin, end) for item in self.commitments)

    def spent_intervals(self) -> Iterator[RateInterval]:
        """Yield the rate intervals of what was billed."""
        yield from self.spent
        for (unit, begin, end), nanos in self.past_flows.items():
            yield from flow_intervals(unit, begin, end, nanos)

    def committed_intervals(self, now: int, horizon: int) -> Iterator[RateInterval]:
        """Yield the rate intervals of committed cost; what has no end counts up to `horizon`."""
        for item in self.commitments:
            yield from item.intervals(now, horizon)
        for unit, begin, end, nanos in self._future_flows(now, horizon):
            yield from flow_intervals(unit, begin, end, nanos)

    def hourly_burn(self, now: int) -> int:
        """Return the cost of the next hour if everything keeps running, in exact parts."""
        end = now + HOUR_MICROS
        costs = (interval for item in self.commitments for interval in item._replace(until=None).intervals(now, end))
        return intervals_cost(costs, now, end) + sum(
            nanos * exact_cost(unit, now, end) for (unit, _, _), nanos in self.future_flows.items()
        )

    def run_ends(self) -> Iterator[int]:
        """Yield the ends of the running resources that have one, and `planned_end`, in microseconds."""
        yield self.planned_end
        yield from (item.until for item in self.commitments if item.until is not None)
        yield from (until for _, _, until in self.future_flows if until is not None)

    def _future_flows(self, now: int, horizon: int) -> Iterator[tuple[int, int, int, int]]:
        for (unit, since, until), nanos in self.future_flows.items():
            yield unit, now if since is None or since > now else since, horizon if until is None else until, nanos


@dataclass(frozen=True, slots=True)
class PeriodSums:
    """One period of a budget: its spend, the committed cost of running machines (`running`), and the requested cost.

    `until` is its end; of a rolling budget that of its most expensive window, of a total one the end of the forecast.
    """

    since: datetime | None
    until: datetime
    spent: Money
    running: Money
    requested: Money
    fits: bool  # within the limit; a request that costs nothing always fits

    @property
    def total(self) -> Money:
        """The sum that is compared with the limit."""
        return self.spent + self.running + self.requested


@dataclass(frozen=True, slots=True)
class BudgetVerdict:
    """Whether a request fits a budget. `machines_without_price` are those of which nobody knows what they cost.

    `names_to_end` is what `down` takes for those that run already. `price_assumptions` says which prices are not known
    and what was counted instead. `covered` are the requested machines that the budget covers.
    """

    budget: Budget
    periods: tuple[PeriodSums, ...]
    machines_without_price: tuple[str, ...] = ()
    price_assumptions: tuple[str, ...] = ()
    covered: tuple[Machine, ...] = ()
    names_to_end: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether it fits the budget in each of its periods."""
        return not self.machines_without_price and all(sums.fits for sums in self.periods)

    @property
    def tightest(self) -> PeriodSums:
        """The period with the least left of the limit, or the largest excess."""
        return max(self.periods, key=lambda sums: sums.total)


@dataclass(frozen=True, slots=True)
class Admission:
    """The verdicts on a request of every budget that covers it."""

    verdicts: tuple[BudgetVerdict, ...] = ()

    @property
    def refusals(self) -> tuple[BudgetVerdict, ...]:
        """The verdicts of the refusing budgets that the request does not fit."""
        return tuple(verdict for verdict in self.verdicts if verdict.budget.refuses and not verdict.fits)


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """A machine that is requested from `now` on, with the sums of every budget that covers it or a further node.

    `further_nodes` are requested with it, all or none, if it is the first node of the cluster `cluster_name`.
    """

    subject: Machine
    budget_sums: tuple[BudgetSums, ...]
    volumes: frozenset[tuple[str, str]]
    prices: Prices
    now: datetime
    further_nodes: tuple[Machine, ...] = ()
    cluster_name: str = ""

    @property
    def name(self) -> str:
        """The name of what is requested."""
        count = len(self.further_nodes) + 1
        return f"the {count} machines of {self.cluster_name}" if self.further_nodes else self.subject.name

    def admission(self, change: Callable[[Machine], Machine] | None = None) -> Admission:
        """Return the verdicts on it, each machine as `change` returns it."""
        return self._admission([one if change is None else change(one) for one in (self.subject, *self.further_nodes)])

    def fitting_count(self) -> int:
        """Return how many of the machines fit every refusing budget, fewer than all: 0 for none."""
        subjects = (self.subject, *self.further_nodes)
        return next((n for n in range(len(subjects) - 1, 0, -1) if not self._admission(subjects[:n]).refusals), 0)

    def _admission(self, subjects: Sequence[Machine]) -> Admission:
        costs = [commitments_of(subject, to_us(self.now), self.prices, self.volumes) for subject in subjects]
        by_node = list(zip(subjects, costs, strict=True))
        covered = [(one, [node for node in by_node if one.budget.scope.covers(node[0])]) for one in self.budget_sums]
        return Admission(tuple(_verdict(sums, nodes, self.now) for sums, nodes in covered if nodes))


def admission_request(
    budgets: Iterable[Budget],
    subject: Machine,
    exposures: Sequence[Machine | Exposure],
    ended: EndedUsages,
    prices: Prices,
    now: datetime,
    unpriced_ended: EndedUsages | None = None,
    further_nodes: Sequence[Machine] = (),
    cluster_name: str = "",
) -> AdmissionRequest:
    """Return the request for a machine (`subject`, as the ledger would have it) with the sums of budgets that cover it.

    `further_nodes` are requested with it, and a budget may cover only some of them. `exposures` are all billable
    machines. Of those with the ids of what is requested, only past costs count, as the request replaces them. `ended`
    gives the ended usages since a time (None: all), `unpriced_ended` those without a price. With it, total budgets use
    the machines' sums instead of every ended usage. Neither is called if no budget covers the request.
    """
    requested = (subject, *further_nodes)
    covering = [budget for budget in budgets if any(map(budget.scope.covers, requested))]
    volumes = existing_volumes(exposure for exposure in exposures if not isinstance(exposure, Exposure))
    ids = {machine.id for machine in requested}
    sums = budget_sums(
        covering, exposures, ended, prices, now, volumes, excluded_ids=ids, unpriced_ended=unpriced_ended
    )
    return AdmissionRequest(subject, sums, volumes, prices, now, tuple(further_nodes), cluster_name)


def budget_sums(
    budgets: Sequence[Budget],
    exposures: Sequence[Machine | Exposure],
    ended: EndedUsages,
    prices: Prices,
    now: datetime,
    volumes: frozenset[tuple[str, str]],
    *,
    excluded_ids: Collection[str] = (),
    unpriced_ended: EndedUsages | None = None,
) -> tuple[BudgetSums, ...]:
    """Return the sums of each budget, without future costs of the machines with the ids `excluded_ids`."""
    all_sums = tuple(BudgetSums(budget, _period_begin(budget, now)) for budget in budgets)
    if not all_sums:
        return ()
    now_us, covers = to_us(now), _CoverageCache(all_sums)
    covering_by_id: dict[str, Sequence[BudgetSums]] = {}
    names: dict[str, str] = {}
    by_totals = [sums for sums in all_sums if unpriced_ended is not None and sums.budget.period.kind == "total"]
    for exposure in exposures:
        machine_id = exposure.id
        names[machine_id] = exposure.name
        covering_by_id[machine_id] = covering = covers(exposure)
        if isinstance(exposure, Exposure):
            _add_exposure(covering, exposure, now_us, prices, ahead=machine_id not in excluded_ids)
        elif covering:
            _add_commitments(covering, exposure, now_us, prices, volumes, ahead=machine_id not in excluded_ids)
        if by_totals:
            _add_ended([sums for sums in covering if sums in by_totals], exposure)
    by_usages = [sums for sums in all_sums if sums not in by_totals]
    for chosen, uses in (
        (by_usages, ended(earliest_relevant([sums.budget for sums in by_usages], now)) if by_usages else ()),
        (by_totals, unpriced_ended(None) if by_totals and unpriced_ended else ()),
    ):
        chosen_covering = covering_by_id if len(chosen) == len(all_sums) else _only_chosen(chosen, covering_by_id)
        for machine_id, use in uses:
            _add_usage(chosen_covering.get(machine_id, ()), use, now_us, prices, names.get(machine_id, machine_id))
    return all_sums


class _CoverageCache:
    """Which budgets cover a machine, cached by its provider, account, project and owner."""

    def __init__(self, budget_sums: Sequence[BudgetSums]) -> None:
        self._all_sums = budget_sums
        self._has_machine_scope = any(sums.budget.scope.instance is not None for sums in budget_sums)
        self._by_owner: dict[tuple[str, str, str, str], Sequence[BudgetSums]] = {}

    def __call__(self, subject: Machine | Exposure) -> Sequence[BudgetSums]:
        """Return the sums of the budgets that cover a machine or an exposure."""
        if not isinstance(subject, Exposure):
            return [sums for sums in self._all_sums if sums.budget.scope.covers(subject)]
        key = subject.provider, subject.account, subject.project, subject.owner
        covering = None if self._has_machine_scope else self._by_owner.get(key)
        if covering is None:
            names = ("", "") if subject.is_named_resource else (subject.name, subject.id)
            covering = self._by_owner[key] = [
                sums for sums in self._all_sums if sums.budget.scope.matches(*key, *names)
            ]
        return covering


def _only_chosen(
    chosen: Sequence[BudgetSums], covering: Mapping[str, Sequence[BudgetSums]]
) -> dict[str, list[BudgetSums]]:
    return {subject: [sums for sums in covered if sums in chosen] for subject, covered in covering.items()}


def _period_begin(budget: Budget, now: datetime) -> int:
    period_ = current_period(budget, now)
    return 0 if period_ is None else max(0, to_us(period_.begin))


def _add_ended(covering: Sequence[BudgetSums], subject: Machine | Exposure) -> None:
    """Add what the ended usages of a machine have cost at most; those without a price are in no sum."""
    if not covering:
        return
    if isinstance(subject, Exposure):
        ended_total = subject.ended_total
    else:
        ended_total = sum(total[2] for total in subject.usage_totals.values())
    for sums in covering:
        sums.ended_total += ended_total


def _add_exposure(covering: Sequence[BudgetSums], exposure: Exposure, now: int, prices: Prices, *, ahead: bool) -> None:
    """Add an exposure to the sums of its budgets: its open usages, and, with `ahead`, what it will cost."""
    items = exposure.items if exposure.items_today is None or not prices.at_spot_prices else exposure.items_today
    runs = ahead and any(delay is not None for _, _, delay, _ in items)
    until = exposure.until(now, reaper_runs=prices.reaper_runs) if runs else None
    planned_end = (exposure.until(now, reaper_runs=True) if runs else None) or 0
    for sums in covering:
        sums.planned_end = max(sums.planned_end, planned_end)
        past_flows, future, since = sums.past_flows, sums.future_flows, sums.since
        for nanos, begin, end, unit in exposure.flows(now):
            if end > since:
                flow = unit, max(begin, since), end
                past_flows[flow] = past_flows.get(flow, 0) + nanos
        for nanos, unit, delay, is_retroactive in items if ahead else ():
            future_flow = (
                unit,
                exposure.launch_sent_us if is_retroactive else None,
                None if delay is None or until is None else until + delay,
            )
            future[future_flow] = future.get(future_flow, 0) + nanos


def _add_commitments(
    covering: Sequence[BudgetSums],
    subject: Machine,
    now: int,
    prices: Prices,
    volumes: frozenset[tuple[str, str]],
    *,
    ahead: bool,
) -> None:
    """Add a machine to the sums of its budgets: its open usages, and, with `ahead`, what it will cost."""
    for use in subject.open_usage:
        _add_usage(covering, use, now, prices, subject.name)
    if not ahead:
        return
    future = commitments_of(subject, now, prices, volumes)
    for sums in covering:
        sums.commitments += future.items
        sums.planned_end = max(sums.planned_end, future.planned_end)
        if future.is_unpriced:
            sums.machines_without_price.append(subject.name)
            sums.names_to_end[command_name(subject)] = None
        sums.price_assumptions |= _assumption_texts(subject, future.items)


def _add_usage(
    covering: Sequence[BudgetSums], use: Usage | list[RateInterval], now: int, prices: Prices, name: str
) -> None:
    """Add what a usage has cost; without a price, what is counted instead."""
    if isinstance(use, list):
        for sums in covering:
            sums.spent += use
        return
    if not use.segments:
        use, why = with_price(use, prices)
        for sums in covering:
            sums.price_assumptions[f"{name}: {use.what}: {why}"] = None
    intervals = billed_intervals(use, now) if covering else ()
    for sums in covering:
        sums.spent += intervals


def _assumption_texts(subject: Machine, items: Iterable[Commitment]) -> dict[str, None]:
    return dict.fromkeys(f"{subject.name}: {one.what}: {one.assumption}" for one in items if one.assumption)


def _verdict(sums: BudgetSums, nodes: Sequence[tuple[Machine, Commitments]], now: datetime) -> BudgetVerdict:
    """Return the verdict on the requested machines that a budget covers, each with what it will cost."""
    commitments = Commitments(
        tuple(chain.from_iterable(costs.items for _, costs in nodes)),
        any(costs.is_unpriced for _, costs in nodes),
        max(costs.planned_end for _, costs in nodes),
    )
    subject = nodes[0][0]
    machines_without_price = [*sums.machines_without_price, *([subject.name] if commitments.is_unpriced else [])]
    price_assumptions = sums.price_assumptions | _assumption_texts(subject, commitments.items)
    is_free = not commitments.is_unpriced and not any(commitment.nanos for commitment in commitments.items)
    return BudgetVerdict(
        sums.budget,
        tuple(period_sums(sums, commitments, now)),
        () if is_free else tuple(machines_without_price),
        tuple(price_assumptions),
        tuple(node for node, _ in nodes),
        tuple(sums.names_to_end),
    )


def period_sums(sums: BudgetSums, requested_costs: Commitments, now: datetime) -> Iterator[PeriodSums]:
    """Yield each period in which the request costs, with the sums that are compared with the limit."""
    budget, now_us, commitments = sums.budget, to_us(now), requested_costs.items
    ends = (commitment.until for commitment in commitments if commitment.until is not None)
    last = max([now_us, requested_costs.planned_end, *ends])
    if budget.period.kind in ("day", "week", "month"):
        for one in periods(budget.period.kind, now, from_us(last), budget.zone):
            yield _sums_within(sums, commitments, one, now_us)
        return
    horizon = max([last, *sums.run_ends()])
    if not budget.period.days:
        yield _sums_within(sums, commitments, Period(from_us(0), from_us(horizon)), now_us, endless=True)
        return
    length = budget.period.window // timedelta(microseconds=1)
    requested = (interval for commitment in commitments for interval in commitment.intervals(now_us, horizon))
    intervals = chain(sums.spent_intervals(), sums.committed_intervals(now_us, horizon), requested)
    end, _ = most_expensive_window(intervals, length, now_us, horizon)
    # The request counts also if the most expensive window ends now, before it costs anything.
    request_costs = any(commitment.nanos for commitment in commitments)
    yield _sums_within(
        sums,
        commitments,
        Period(from_us(end - length), from_us(end)),
        now_us,
        horizon=horizon,
        request_costs=request_costs,
    )


def _sums_within(
    sums: BudgetSums,
    commitments: Sequence[Commitment],
    within: Period,
    now: int,
    *,
    endless: bool = False,
    horizon: int | None = None,
    request_costs: bool = False,
) -> PeriodSums:
    """Return the sums of one period; commitments without an end count to `horizon`, or to its end.

    `request_costs`: the request costs something in a period as expensive as this one, if not in this one.
    """
    begin, end = to_us(within.begin), to_us(within.end)
    end_of_endless = horizon or end
    spent = sums.ended_total + sums.spent_within(begin, FAR_FUTURE_US if endless else end)
    running = sums.committed_within(begin, end, now, end_of_endless)
    requested = sum(intervals_cost(commitment.intervals(now, end_of_endless), begin, end) for commitment in commitments)
    fits = not (requested or request_costs) or spent + running + requested <= sums.budget.limit.nanos * PARTS_PER_NANO
    since = None if endless else within.begin
    return PeriodSums(since, within.end, money(spent), money(running), money(requested), fits)
