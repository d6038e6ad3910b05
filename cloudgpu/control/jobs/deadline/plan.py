"""Plans a job with a deadline: the prices of both markets, when on demand begins at the latest, what it will cost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from cloudgpu.control.budgets.store import fallback_prices
from cloudgpu.control.inputs.launch_request import UpOptions, parse_request
from cloudgpu.control.jobs.deadline.choice import measured_margins
from cloudgpu.control.jobs.inputs.deadline import ON_DEMAND, DeadlineRequest, check_feasible
from cloudgpu.control.jobs.inputs.request import RunRequest
from cloudgpu.control.launch.plan import PreparedLaunch, prepare
from cloudgpu.control.launch.within_cost import prepare_within_cost
from cloudgpu.control.session.session import Session
from cloudgpu.control.spot.backtest import observed_traces
from cloudgpu.core.billing.charges import money
from cloudgpu.core.billing.rules import intervals_cost, parse_us, to_us
from cloudgpu.core.budgets.commitments import commitments_of
from cloudgpu.core.events.job_events import DeadlineRecord
from cloudgpu.core.jobs.deadline import HOUR_S, SAMPLE_INTERVAL_S, Margins, lifetime_options
from cloudgpu.core.launch.plan import budget_subject
from cloudgpu.core.model.machine import not_none
from cloudgpu.core.spot.replay.quote import Quote, quote
from cloudgpu.core.spot.safety_net import SafetyNet, latest_start
from cloudgpu.core.spot.simulate import SpotJob
from cloudgpu.core.values.money import HOUR_MICROS, Money
from cloudgpu.core.values.times import HOUR, iso
from cloudgpu.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class PlannedDeadline:
    """The plan of a job with a deadline, `at`. `work` is how long its command runs uninterrupted.

    `policy` names the spot policy; `spot` and `on_demand` are what all its machines cost an hour on either market;
    `margins` are the times that are set aside for start-up and shutdown. `on_demand_from` is when it has to start on
    demand if it gets no spot machine before. `quote` is what it is expected to cost, None where only on demand is used.
    """

    at: datetime
    work: timedelta
    policy: str
    spot: Money
    on_demand: Money
    margins: Margins
    on_demand_from: datetime
    quote: Quote | None
    on_demand_account: tuple[str, str]  # provider and account of the on-demand machine
    budget_nanos_per_hour: int  # what budgets count for an hour of that machine, with its attached costs

    def record(self) -> DeadlineRecord:
        """Return it as the ledger stores it."""
        return {
            "at": iso(self.at),
            "work_s": self.work // timedelta(seconds=1),
            "policy": self.policy,
            "spot": self.spot.nanos,
            "on_demand": self.on_demand.nanos,
            "provider": self.on_demand_account[0],
            "account": self.on_demand_account[1],
            "budget_per_hour": self.budget_nanos_per_hour,
        }


def plan_deadline(
    session: Session, request: RunRequest, deadline_request: DeadlineRequest, launch: UpOptions
) -> tuple[PlannedDeadline, PreparedLaunch, UpOptions]:
    """Return the plan of a deadline, the most expensive launch it may need, and the options that all launches share.

    The most expensive is on demand, from now until the results of a job that ends at its deadline are fetched, or until
    it costs --max-cost: budgets reserve that. Raises InvalidRequest for a deadline that cannot be met, and as `up` does
    for a launch on either market.
    """
    now = session.clock()
    common_options = cast(
        "UpOptions", {**lifetime_options(deadline_request.moment(now) - now, request.results_wait), **launch}
    )
    on_demand_options: UpOptions = {**common_options, "spot": False}
    on_demand_options.pop("max_price", None)
    prepared, _ = prepare_within_cost(session, on_demand_options, request.max_cost)
    on_demand = _hourly_price(prepared)
    configuration = prepared.plan.offer.configuration
    margins = measured_margins(session, None, provider=configuration.provider)
    deadline_at = check_feasible(deadline_request, now, margins, on_demand)
    spot, policy = on_demand, deadline_request.policy
    if policy != ON_DEMAND:
        spot_options: UpOptions = {**common_options, "spot": True}
        spot = _hourly_price(prepare(session, parse_request(**spot_options)))
    if not deadline_request.is_policy_named and spot.nanos >= on_demand.nanos:
        policy = ON_DEMAND  # an interruption costs, and nothing is saved
    safety_net = SafetyNet(margins.start_s / HOUR_S, margins.pass_interval_s / HOUR_S)
    time_left = deadline_at - now
    planned = PlannedDeadline(
        deadline_at,
        deadline_request.work,
        policy,
        spot,
        on_demand,
        margins,
        now + timedelta(hours=latest_start(time_left / HOUR, deadline_request.work / HOUR, safety_net)),
        None if policy == ON_DEMAND else _quote(session, deadline_request, time_left, margins, spot, on_demand),
        (configuration.provider, configuration.account),
        _budget_rate(session, prepared),
    )
    shared_options: UpOptions = {**launch}
    shared_options.pop("spot", None)
    return planned, prepared, shared_options


def _hourly_price(prepared: PreparedLaunch) -> Money:
    """Return what all machines of a launch cost an hour. Raises InvalidRequest where that is not known."""
    price = prepared.plan.offer.price
    if price is not None:
        return Money(price.per_hour.nanos * prepared.plan.nodes)
    raise InvalidRequest(
        "The price of this machine is not known, so spot and on demand cannot be weighed.",
        field="--deadline",
        value=prepared.plan.offer.configuration.instance_type,
        next="Choose another machine (cloudgpu gpus), or leave --deadline out.",
    )


def _budget_rate(session: Session, prepared: PreparedLaunch) -> int:
    """Return what budgets count for an hour of all machines of a launch, in nano-dollars, averaged to renew-until."""
    machine, now = budget_subject(prepared.plan, prepared.name), to_us(session.clock())
    commitments = commitments_of(machine, now, fallback_prices(session)).items
    end_us = max(
        [
            parse_us(not_none(machine.renew_until)),
            *(commitment.until for commitment in commitments if commitment.until is not None),
        ]
    )
    total = sum(intervals_cost(commitment.intervals(now, end_us), now, end_us) for commitment in commitments)
    return -(-money(total).nanos * prepared.plan.nodes * HOUR_MICROS // max(1, end_us - now))


def _quote(
    session: Session, request: DeadlineRequest, time_left: timedelta, margins: Margins, spot: Money, on_demand: Money
) -> Quote:
    """Return what the job will probably cost, by the spot machines in this ledger, else by `core.spot.fitted`."""
    job = SpotJob(
        request.work / HOUR,
        time_left / HOUR,
        SAMPLE_INTERVAL_S / HOUR_S,
        margins.start_s / HOUR_S,
        spot.nanos / 1e9,
        on_demand.nanos / 1e9,
    )
    return quote(job, observed_traces(session), policy=request.policy)
