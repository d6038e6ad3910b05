"""A backtest of spot policies as a plain value: the optimum, each policy, and one run in time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cloudgpu.core.spot.replay.backtest import Backtest, Interval, PolicyResult, mean
from cloudgpu.core.spot.simulate import Run, SpotJob, Tick

if TYPE_CHECKING:
    from cloudgpu.core.spot.replay.traces import Trace
    from cloudgpu.views.documents.jobs.spot import (
        SpotBacktestDocument,
        SpotInterval,
        SpotPolicyResult,
        SpotPolicyTimeline,
        SpotStretch,
        SpotTimeline,
        TickMode,
    )

_ROUNDING_ERROR = 1e-9  # a smaller sum of floats is zero


def backtest_document(
    backtest: Backtest, traces: Sequence[Trace], *, seed: int, priced: bool, from_ledger: bool
) -> SpotBacktestDocument:
    """Return a backtest as `-o json` prints it: hours, and amounts in the currency of the job's prices.

    `priced`: the user gave a price. `from_ledger`: the traces are what the ledger observed.
    """
    job = backtest.job
    optima = [start.best for start in backtest.starts]
    return {
        "work_h": job.work_h,
        "deadline_h": job.deadline_h,
        "changeover_h": job.changeover_h,
        "tick_h": job.tick_h,
        "price_spot": job.price_spot,
        "price_on_demand": job.price_on_demand,
        "priced": priced,
        "from_ledger": from_ledger,
        "traces": [
            {
                "name": trace.name,
                "hours": round(trace.seconds / 3600, 2),
                "available_share": round(trace.share, 4),
                "tested": trace.name not in backtest.too_short,
            }
            for trace in traces
        ],
        "together": backtest.together,
        "runs": len(backtest.starts),
        "seed": seed,
        "on_demand_only": _rounded(job.on_demand_only),
        "optimum": {
            "cost": _rounded(backtest.optimum),
            "on_demand_hours": _rounded(mean([optimum.on_demand_h for optimum in optima])),
            "spot_hours": _rounded(mean([optimum.spot_h for optimum in optima])),
        },
        "policies": [_policy(policy) for policy in backtest.policies],
        "timeline": _timeline(backtest),
    }


def _policy(result: PolicyResult) -> SpotPolicyResult:
    return {
        "policy": result.policy,
        "cost": _interval(result.cost),
        "cost_p95": _rounded(result.cost_p95),
        "above_optimum": _interval(result.above),
        "above_optimum_p95": _rounded(result.above_p95),
        "on_demand_hours": _rounded(result.on_demand_h),
        "spot_hours": _rounded(result.spot_h),
        "starts": _rounded(result.starts),
        "interruptions": _rounded(result.losses),
        "missed": result.missed,
        "runs": len(result.runs),
    }


def _timeline(backtest: Backtest) -> SpotTimeline:
    shown_start, names = backtest.shown, [trace.name for trace in backtest.shown.traces]
    return {
        "traces": names,
        "at_h": round(shown_start.at_s / 3600, 4),
        "optimum": _rounded(shown_start.best.cost),
        "available": [list(map(bool, zone)) for zone in shown_start.zones(backtest.job)],
        "policies": [
            _run_document(result.policy, run, backtest.job, names)
            for result, run in zip(backtest.policies, backtest.timelines, strict=True)
        ],
    }


def _run_document(policy: str, run: Run, job: SpotJob, names: Sequence[str]) -> SpotPolicyTimeline:
    return {
        "policy": policy,
        "cost": _rounded(run.cost),
        "finish_h": _rounded(run.finish_h),
        "starts": run.starts,
        "stretches": _merge_stretches(_stretches(run.timeline, job, names)),
    }


def _stretches(ticks: Sequence[Tick], job: SpotJob, names: Sequence[str]) -> Iterable[SpotStretch]:
    """Yield each tick as one or two stretches of time in one mode: the changeover, and what follows it."""
    for index, tick in enumerate(ticks):
        since_h = index * job.tick_h
        zone = None if tick.zone is None else names[tick.zone]
        work_done = 1 - tick.work_left_h / job.work_h
        if tick.mode == "wait":
            yield _stretch("wait", None, None, since_h, since_h + tick.hours, work_done)
            continue
        work_since_h = since_h + tick.changeover_h
        if tick.changeover_h > 0:
            done_before = work_done - (tick.hours - tick.changeover_h) / job.work_h
            yield _stretch("changeover", tick.mode, zone, since_h, work_since_h, done_before)
        if tick.hours > tick.changeover_h:
            yield _stretch(tick.mode, tick.mode, zone, work_since_h, since_h + tick.hours, work_done)


def _stretch(
    mode: TickMode, market: str | None, zone: str | None, since_h: float, until_h: float, work_done: float
) -> SpotStretch:
    return {
        "mode": mode,
        "market": market,
        "zone": zone,
        "since_h": _rounded(since_h),
        "until_h": _rounded(until_h),
        "work_done": _rounded(work_done),
    }


def _merge_stretches(stretches: Iterable[SpotStretch]) -> list[SpotStretch]:
    """Return the stretches; consecutive ones of the same mode, market and zone become one."""
    merged: list[SpotStretch] = []
    for stretch in stretches:
        previous = merged[-1] if merged else None
        if previous is not None and all(previous[key] == stretch[key] for key in ("mode", "market", "zone")):
            previous["until_h"], previous["work_done"] = stretch["until_h"], stretch["work_done"]
        else:
            merged.append(stretch)
    return merged


def _interval(interval: Interval) -> SpotInterval:
    low, high = (None if end is None else _rounded(end) for end in (interval.low, interval.high))
    return {"mean": _rounded(interval.mean), "low": low, "high": high}


def _rounded(value: float) -> float:
    """Return hours or an amount, rounded for JSON."""
    return round(max(0.0, value) if abs(value) < _ROUNDING_ERROR else value, 4)
