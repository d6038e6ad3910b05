"""What a policy would have done, as a plain value: the costs, each machine, and each stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.core.billing.charges import money
from cloudgpu.core.policies.policy import ReaperAction
from cloudgpu.core.reaper.backtest import Amount, BacktestResult, EndEffect, add_results, off_seconds
from cloudgpu.core.reaper.replay import Work
from cloudgpu.core.values.money import usd
from cloudgpu.core.values.times import iso

if TYPE_CHECKING:
    from cloudgpu.views.documents.automation.backtest import (
        Amount as AmountValue,
        BacktestDocument,
        ReplayedMachine,
        ReplayedStop,
        ReplayedWork,
    )

NOT_REPLAYED = (
    "Leases and holds count as they were given; budgets of the lab, machines that are stopped for long and images "
    "are not replayed."
)
CLUSTER_NOTE = (
    "A cluster is evaluated as one: it is in use when any node is. Queues are not recorded, so a job counts once a "
    "node works on it."
)
PARK_NOTE = "Some of the ends park a machine or end it: what its image would cost, or its disk no longer, is in no sum."


@dataclass(frozen=True, slots=True)
class BacktestedPolicy:
    """The tested policy: its name, its file, what the lab's limits change of it, and the replayed period."""

    policy: str
    file: str
    limit_notes: tuple[str, ...]
    since: datetime
    until: datetime
    interval: timedelta


def backtest_document(tested: BacktestedPolicy, machines: Sequence[BacktestResult]) -> BacktestDocument:
    """Return what the policy would have done with these machines.

    Money is decimal text in USD, null where nothing has a known price. `unsampled_share` is how much of the time that
    machines ran has no samples (null: none ran); nothing is ended for idle time there.
    """
    seconds, unsampled_s = sum(result.seconds for result in machines), sum(result.unsampled_s for result in machines)
    ends = [(result, effect) for result in machines for effect in result.effects]
    cost, saved = add_results(result.cost for result in machines), add_results(result.saved for result in machines)
    restarted = [effect for _, effect in ends if effect.end.work is not None]
    killed_work = [effect.end.work for effect in restarted if effect.end.work is not None and effect.end.work.under_way]
    return {
        "policy": tested.policy,
        "file": tested.file,
        "since": iso(tested.since),
        "until": iso(tested.until),
        "every_s": tested.interval.total_seconds(),
        "hours": _hours(seconds),
        "unsampled_share": round(unsampled_s / seconds, 4) if seconds else None,
        "cost": _amount(cost),
        "savings": _amount(saved),
        "would_have_cost": _amount(cost - saved),
        "ends": len(ends),
        "off_hours": _hours(off_seconds(machines)),
        "restarts": len(restarted),
        "restarts_usd": _usd(add_results(effect.start_charge for effect in restarted)),
        "killed": len(killed_work),
        "killed_hours": _hours(sum(work.seconds for work in killed_work)),
        "machines": [_machine(result) for result in machines],
        "stops": [_stop(result, effect) for result, effect in sorted(ends, key=lambda pair: pair[1].end.at)],
        "notes": [
            *tested.limit_notes,
            NOT_REPLAYED,
            *([CLUSTER_NOTE] if any(result.history.recorded.other_nodes for result in machines) else []),
            *([PARK_NOTE] if any(effect.end.do is not ReaperAction.STOP for _, effect in ends) else []),
        ],
    }


def _machine(result: BacktestResult) -> ReplayedMachine:
    return {
        "machine": result.history.machine.id,
        "name": result.history.machine.name,
        "hours": _hours(result.seconds),
        "unsampled_share": round(result.unsampled_s / result.seconds, 4) if result.seconds else None,
        "cost": _amount(result.cost),
        "savings": _amount(result.saved),
        "ends": len(result.effects),
        "actual_ends": [{"at": iso(at), "why": why} for at, why in result.history.ends],
    }


def _stop(result: BacktestResult, effect: EndEffect) -> ReplayedStop:
    end, work = effect.end, effect.end.work
    return {
        "machine": result.history.machine.id,
        "name": result.history.machine.name,
        "do": str(end.do),
        "rule": end.rule,
        "why": end.why,
        "at": iso(end.at),
        "until": iso(end.until),
        "off_s": round((end.until - end.at).total_seconds()),
        "unsampled_s": round(effect.unsampled_s),
        "savings": _amount(effect.saved),
        "restart_usd": None if work is None else _usd(effect.start_charge),
        "work": None if work is None else _replayed_work(work),
    }


def _replayed_work(work: Work) -> ReplayedWork:
    return {
        "since": iso(work.begin),
        "until": iso(work.end),
        "seconds": round(work.seconds),
        "what": list(work.what),
        "under_way": work.under_way,
    }


def _amount(amount: Amount) -> AmountValue:
    """Return an amount with its bounds; null where nothing in it has a known price."""
    is_unpriced = amount.unpriced and not amount.high
    return {
        "usd": None if is_unpriced else usd(money(amount.amount)),
        "low_usd": None if is_unpriced else usd(money(amount.low)),
        "high_usd": None if is_unpriced else usd(money(amount.high)),
        "unpriced": amount.unpriced,
    }


def _usd(amount: Amount) -> str | None:
    return None if amount.unpriced and not amount.high else usd(money(amount.amount))


def _hours(seconds: float) -> float:
    return round(seconds / 3600, 4)
