"""What counts as use of a machine: ACTIVE, IDLE or UNKNOWN, from samples, thresholds and the time.

The agent carries these very lines (`cloudgpu.agent.program.source`), so they are Python 3.8 and need nothing of ours.

A sample says what about one minute showed, as a dict: `t` its end (epoch, by the machine's clock), `s` its seconds;
`gpu` the highest utilisation of any GPU in percent, `cpu` the mean of cores busy, `net` and `disk` mean bytes a second
(None: it could not be read; not there: the machine has none); `in` and `out` the seconds since anybody typed in a
terminal or one printed something, `jup` since a Jupyter kernel did something (None: there was none); `busy` the
kernels at work, `job` the jobs that run (not there: none); `fault` what could not be looked at, empty for nothing.
Ages, not stamps: a clock that is set right later makes nothing older or younger.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

ACTIVE, IDLE, UNKNOWN = "ACTIVE", "IDLE", "UNKNOWN"
BASE = 0.1  # cores, the most that counts as a machine's own noise: a job that runs from the boot on is none
FIRST_SAMPLE_S = 60.0  # seconds after a start in which there need be no sample
FRESH_S = 300.0  # seconds: where the last sample is older than that, nothing is known of now
METERS = {"gpu": "GPU", "cpu": "CPU", "net": "network", "disk": "disk"}
AGES = {"in": "terminal input", "out": "terminal output", "jup": "kernel", "busy": "busy kernel", "job": "running job"}


class Thresholds(NamedTuple):
    """What counts, and for how long; seconds, percent, cores over the baseline, bytes a second.

    A policy fills it in. `after`: a sign of life counts for so long. `terminal_output`: output counts so long after
    the last input. `share` of the samples of the last `after` seconds has to be there before silence is idleness.
    `uptime`: a start counts as a sign of life for so long, and for `after`; 0: it is none.
    """

    after: float = 3600.0
    gpu: float = 3.0
    cpu: float = 0.25
    network: float = 100e3
    disk: float = 1e6
    terminal_output: float = 7200.0
    share: float = 0.9
    uptime: float = 1800.0


class Signal(NamedTuple):
    """One thing that may show life. `ago`: seconds since it last did, -1 for never; `counts`: it makes ACTIVE.

    `value` is a meter's highest reading within the window (None: no reading), or the names of kernels at work or of
    jobs, else `ago` (None: never). `limit` is what a meter has to reach, or the seconds for which the signal counts;
    None: as long as it lasts.
    """

    what: str
    value: Any
    limit: Any
    ago: float
    counts: bool


class Judged(NamedTuple):
    """Activity, seconds since the last sign of life (-1: none was seen), why, and what was looked at."""

    activity: str
    ago: float
    why: str
    signals: tuple[Signal, ...]


def judge(samples: Iterable[dict[str, Any]], thresholds: Thresholds, now: float, up_since: float) -> Judged:
    """Return whether a machine is in use, in any order of the samples. What is missing is UNKNOWN, never zero.

    `now` and `up_since` (its latest start) are by the machine's own clock. ACTIVE: some signal counts. IDLE: none does
    and `share` of the window was looked at without a fault. Source of the rule: docs/agent.md, "What counts".
    """
    samples = sorted(samples, key=lambda one: one["t"])
    signals = tuple(_signals(samples, thresholds, now, now - up_since))
    seen = sorted((not one.counts, one.ago, one.what) for one in signals if one.ago >= 0)
    quiet, ago, what = (*seen, (True, -1, ""))[0]
    gap = _gap(samples, thresholds, now, now - up_since) if quiet else ""
    why = gap or (f"{what}, {ago:.0f} s ago" if seen else "nothing runs")
    ago = min((one[1] for one in seen), default=-1)
    return Judged(UNKNOWN if gap else IDLE if quiet else ACTIVE, ago, why, signals)


def _signals(samples: list[dict[str, Any]], limits: Thresholds, now: float, up: float) -> Iterable[Signal]:
    """Yield one signal per thing that was looked at. The CPU's own noise is the least that a whole minute showed."""
    noise = min([BASE, *(one["cpu"] for one in samples if one.get("cpu") is not None and one["s"] >= FIRST_SAMPLE_S)])
    after, network, disk = limits.after, limits.network, limits.disk
    reached = (limits.gpu, limits.cpu + noise, network, disk, after, limits.terminal_output, after, None, None)
    for (key, what), limit in zip({**METERS, **AGES}.items(), reached):
        found = [one for one in samples if one.get(key) not in (None, [])]
        read = [one[key] for one in found if now - one["t"] < after]
        if key in AGES:
            ages = [now - one["t"] + (one[key] if limit else 0) for one in found if key != "out" or _typed(one, limit)]
        else:
            ages = [now - one["t"] for one in found if one[key] >= limit]
        if (key in AGES and key != "job") or any(key in one for one in samples):
            ago = max(0.0, min(ages)) if ages else -1
            value = max(read, default=None) if key in METERS or not limit else ago if ages else None
            yield Signal(what, value, limit, ago, 0 <= ago < after)
    if limits.uptime:
        limit = max(after, limits.uptime)
        yield Signal("start", up, limit, max(0.0, up), up < limit)


def _typed(one: dict[str, Any], limit: float) -> bool:
    """Tell whether output comes soon enough after the last input of anybody to count."""
    return one.get("in") is not None and one["in"] - one["out"] <= limit


def _gap(samples: list[dict[str, Any]], limits: Thresholds, now: float, up: float) -> str:
    """Return why silence is no idleness here, empty where it is. A machine's first minute needs no samples."""
    window = max(0.0, min(limits.after, up - FIRST_SAMPLE_S))
    have, reach, fresh, fault = 0.0, now - window, False, ""
    for one in samples:
        bad = one.get("fault") or ", ".join(METERS[key] + " not read" for key in METERS if one.get(key, 0) is None)
        if not bad:
            have += max(0.0, min(one["t"], now) - max(one["t"] - one["s"], reach))
            reach = max(one["t"], reach)
            fresh = fresh or now - one["t"] < FRESH_S
        elif one["t"] > now - window:
            fault = fault or bad
    if fresh and have >= limits.share * window:
        return ""
    fault = fault or "no sample"
    return f"{fault}: {have / 60:.0f} of {window / 60:.0f} min are known"
