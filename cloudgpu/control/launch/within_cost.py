"""Plans a launch that may cost so much at most, which limits how long its machine lives."""

from __future__ import annotations

from datetime import timedelta

from cloudgpu.control.inputs.launch_request import UpOptions, parse_request
from cloudgpu.control.launch.plan import PreparedLaunch, prepare
from cloudgpu.control.session.session import Session
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import seconds_text

COST_GRACE = timedelta(minutes=15)  # a watcher sees --max-cost reached within minutes, and results come back first


def prepare_within_cost(session: Session, launch: UpOptions, limit: Money | None) -> tuple[PreparedLaunch, UpOptions]:
    """Return the plan of a launch, and its options, with a renew-until that `limit` (`--max-cost`) allows.

    The watcher ends a job at its limit. Where none is awake, the machine's own end comes a quarter of an hour later.
    None: there is no limit. Raises as `prepare`.
    """
    prepared = prepare(session, parse_request(**launch))
    lifetime = None if limit is None else lifetime_within_cost(prepared, limit)
    if lifetime is None:
        return prepared, launch
    limited_launch: UpOptions = {**launch, "lease": lifetime[0], "renew_until": lifetime[1]}
    return prepare(session, parse_request(**limited_launch)), limited_launch


def lifetime_within_cost(prepared: PreparedLaunch, limit: Money) -> tuple[str, str] | None:
    """Return the lease and the renew-until, as options, that this cost allows a launch; None where the plan's are.

    A quarter of an hour is added. A machine that costs nothing may live as long as planned, whatever is left.
    """
    plan, cost = prepared.plan, prepared.plan.to_renew_until.amount
    if cost.nanos <= max(0, limit.nanos):
        return None
    minutes = plan.request.renew_s * max(0, limit.nanos) // cost.nanos // 60
    lifetime = timedelta(minutes=max(1, minutes)) + COST_GRACE
    return seconds_text(min(timedelta(seconds=plan.request.lease_s), lifetime)), seconds_text(lifetime)
