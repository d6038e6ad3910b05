"""Decides whether a machine is in use: ACTIVE, IDLE or UNKNOWN, from samples, thresholds and the time.

The agent contains this code (`cloudgpu.agent.program.source`), so it is Python 3.8 and imports nothing of cloudgpu.

A sample is what was read in about one minute, a dict: `t` its end (epoch, by the machine's clock), `s` its seconds;
`gpu` the highest utilisation of any GPU in percent, `cpu` the mean number of busy cores, `net` and `disk` mean bytes a
second (None: it could not be read; no such key: the machine has none); `in` and `out` the seconds since terminal
input and output, `jup` since a Jupyter kernel did something (None: there was none); `busy` the names of busy kernels,
`job` those of running jobs (no such key: none); `fault` says what could not be read (empty: all was).
Seconds since, not times: a clock that is corrected later makes nothing older or younger.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

ACTIVE, IDLE, UNKNOWN = "ACTIVE", "IDLE", "UNKNOWN"
BASE = 0.1  # cores: background load of the system up to this is no use; more is, also if it runs since the boot
FIRST_SAMPLE_S = 60.0  # seconds after a start in which there need be no sample
FRESH_S = 300.0  # seconds: where the last sample is older than that, nothing is known of now
# Sentences call the keys of a sample so; METERS are readings, ACTIVITIES signs of a user, a kernel or a job.
METERS = {"gpu": "GPU", "cpu": "CPU", "net": "network", "disk": "disk"}
ACTIVITIES = {
    "in": "terminal input",
    "out": "terminal output",
    "jup": "kernel",
    "busy": "busy kernel",
    "job": "running job",
}


class Thresholds(NamedTuple):
    """From what on a reading counts as use, and for how long; defaults, which a policy replaces.

    `after`: a sign of use counts for so many seconds. `gpu` is percent, `cpu` busy cores above the background load,
    `network` and `disk` bytes a second. `terminal_output`: output counts up to so many seconds after the last input.
    `share`: this part of the last `after` seconds must be covered by samples, else the machine is not IDLE but UNKNOWN.
    `uptime`: a start counts as a sign of use for so many seconds, and at least `after`; 0: it is none.
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
    """One sign of use. `ago`: seconds since it was last seen, -1 for never; `counts`: it makes the machine ACTIVE.

    `what` is its name in texts. `value` is the highest reading of METERS in the window (None: no reading), or the names
    of busy kernels or of jobs, else `ago` (None: never). `limit` is the reading from which it counts, or the
    seconds for which it counts; None: as long as it lasts.
    """

    what: str
    value: Any
    limit: Any
    ago: float
    counts: bool


class ActivityVerdict(NamedTuple):
    """The result of `judge`: activity, seconds since the last sign of use (-1: none was seen), why, and all signs."""

    activity: str
    ago: float
    why: str
    signals: tuple[Signal, ...]


def judge(samples: Iterable[dict[str, Any]], thresholds: Thresholds, now: float, up_since: float) -> ActivityVerdict:
    """Return whether a machine is in use, by samples in any order. Missing samples make it UNKNOWN, never IDLE.

    `now` and `up_since` (its latest start) are by the machine's own clock. ACTIVE: some signal counts. IDLE: none does
    and samples without a fault cover `share` of the window. Source of the rule: docs/agent.md, "What counts".
    """
    samples = sorted(samples, key=lambda one: one["t"])
    signals = tuple(_signals(samples, thresholds, now, now - up_since))
    seen = sorted((not one.counts, one.ago, one.what) for one in signals if one.ago >= 0)
    quiet, ago, what = (*seen, (True, -1, ""))[0]
    gap = _gap(samples, thresholds, now, now - up_since) if quiet else ""
    why = gap or (f"{what}, {ago:.0f} s ago" if seen else "nothing runs")
    ago = min((one[1] for one in seen), default=-1)
    return ActivityVerdict(UNKNOWN if gap else IDLE if quiet else ACTIVE, ago, why, signals)


def _signals(samples: list[dict[str, Any]], limits: Thresholds, now: float, up: float) -> Iterable[Signal]:
    """Yield one signal per sign of use. The lowest CPU reading of a whole minute is background load, up to BASE."""
    background_load = min(
        [BASE, *(one["cpu"] for one in samples if one.get("cpu") is not None and one["s"] >= FIRST_SAMPLE_S)]
    )
    after, network, disk = limits.after, limits.network, limits.disk
    limit_of_each = (
        limits.gpu,
        limits.cpu + background_load,
        network,
        disk,
        after,
        limits.terminal_output,
        after,
        None,
        None,
    )
    for (key, what), limit in zip({**METERS, **ACTIVITIES}.items(), limit_of_each):
        found = [one for one in samples if one.get(key) not in (None, [])]
        recent = [one[key] for one in found if now - one["t"] < after]
        if key in ACTIVITIES:
            ages = [now - one["t"] + (one[key] if limit else 0) for one in found if key != "out" or _typed(one, limit)]
        else:
            ages = [now - one["t"] for one in found if one[key] >= limit]
        if (key in ACTIVITIES and key != "job") or any(key in one for one in samples):
            ago = max(0.0, min(ages)) if ages else -1
            value = max(recent, default=None) if key in METERS or not limit else ago if ages else None
            yield Signal(what, value, limit, ago, 0 <= ago < after)
    if limits.uptime:
        limit = max(after, limits.uptime)
        yield Signal("start", up, limit, max(0.0, up), up < limit)


def _typed(one: dict[str, Any], limit: float) -> bool:
    """Tell whether output comes soon enough after the last input of anybody to count."""
    return one.get("in") is not None and one["in"] - one["out"] <= limit


def _gap(samples: list[dict[str, Any]], limits: Thresholds, now: float, up: float) -> str:
    """Return why the machine may be in use unseen; empty if the samples suffice. Its first minute needs none."""
    window = max(0.0, min(limits.after, up - FIRST_SAMPLE_S))
    covered_s, covered_until, fresh, fault = 0.0, now - window, False, ""
    for one in samples:
        unread = one.get("fault") or ", ".join(METERS[key] + " not read" for key in METERS if one.get(key, 0) is None)
        if not unread:
            covered_s += max(0.0, min(one["t"], now) - max(one["t"] - one["s"], covered_until))
            covered_until = max(one["t"], covered_until)
            fresh = fresh or now - one["t"] < FRESH_S
        elif one["t"] > now - window:
            fault = fault or unread
    if fresh and covered_s >= limits.share * window:
        return ""
    fault = fault or "no sample"
    return f"{fault}: {covered_s / 60:.0f} of {window / 60:.0f} min are known"
