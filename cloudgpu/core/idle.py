"""What counts as use of a machine: ACTIVE, IDLE or UNKNOWN, from samples, thresholds and the time. Pure.

The agent carries these very lines (`cloudgpu.agent.source`), so they are Python 3.8 and need nothing of ours.

A sample says what about one minute showed, as a dict: `t` its end (epoch, by the machine's clock), `s` its seconds;
`gpu` the highest utilisation of any GPU in percent, `cpu` the mean of cores busy, `net` and `disk` mean bytes a second
(None: it could not be read; not there: the machine has none); `in` and `out` the seconds since anybody typed in a
terminal or one printed something, `jup` since a Jupyter kernel did something (None: there was none); `busy` the
kernels at work; `fault` what could not be looked at, empty for nothing. Ages, not stamps: a clock that is set right
later makes nothing older or younger.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

ACTIVE, IDLE, UNKNOWN = "ACTIVE", "IDLE", "UNKNOWN"
BASE = 0.1  # cores, the most that counts as a machine's own noise: a job that runs from the boot on is none
FRESH = 300.0  # seconds: where the last sample is older than that, nothing is known of now
METERS = {"gpu": "GPU", "cpu": "CPU", "net": "network", "disk": "disk"}


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

    `value` is a meter's highest reading within the window (None: no reading), or the names of the kernels at work, else
    None. `limit` is what a meter has to reach, or the seconds for which the signal counts; None: as long as it lasts.
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
    samples = list(samples)
    signals = tuple(_signals(samples, thresholds, now, up_since))
    last = min((one for one in signals if one.ago >= 0), key=lambda one: one.ago, default=None)
    live = min((one for one in signals if one.counts), key=lambda one: one.ago, default=last)
    why = f"{live.what}, {live.ago:.0f} s ago" if live else "nothing runs"
    gap = _gap(samples, thresholds, now)
    activity = ACTIVE if live and live.counts else UNKNOWN if gap else IDLE
    return Judged(activity, last.ago if last else -1, gap if activity == UNKNOWN else why, signals)


def _signals(samples: list[dict[str, Any]], limits: Thresholds, now: float, up_since: float) -> Iterable[Signal]:
    """Yield one signal per thing that was looked at."""
    aged = [(now - one["t"], one) for one in samples]
    for key, limit in zip(METERS, limits[1:5]):
        if any(key in one for _, one in aged):
            yield _metered(key, [(age, one[key]) for age, one in aged if one.get(key) is not None], limit, limits.after)
    for key, what in (("in", "terminal input"), ("out", "terminal output"), ("jup", "kernel")):
        found = [(age, one) for age, one in aged if one.get(key) is not None]
        if key == "out":  # of a terminal in which nobody ever typed, too, it is no sign of life
            found = [
                (age, one)
                for age, one in found
                if one.get("in") is not None and one["in"] - one[key] <= limits.terminal_output
            ]
        limit = limits.terminal_output if key == "out" else limits.after
        yield _signal(what, [age + one[key] for age, one in found], None, limit, limits.after)
    busy = [(age, one["busy"]) for age, one in aged if one.get("busy")]
    yield _signal("busy kernel", [age for age, _ in busy], min(busy, default=(0, None))[1], None, limits.after)
    if limits.uptime:
        counts = max(limits.after, limits.uptime)
        yield _signal("start", [now - up_since], None, counts, counts)


def _metered(key: str, read: list[tuple[float, float]], limit: float, counts: float) -> Signal:
    """Return what a meter shows; the CPU's own noise is the least it ever showed."""
    if key == "cpu":
        limit += min([BASE, *(value for _, value in read)])
    highest = max((value for age, value in read if age < counts), default=None)
    return _signal(METERS[key], [age for age, value in read if value >= limit], highest, limit, counts)


def _signal(what: str, ages: list[float], value: Any, limit: Any, counts: float) -> Signal:
    """Return a signal that was seen at these ages."""
    ago = max(0.0, min(ages)) if ages else -1
    return Signal(what, value, limit, ago, 0 <= ago < counts)


def _gap(samples: list[dict[str, Any]], limits: Thresholds, now: float) -> str:
    """Return why silence is no idleness here, empty where it is."""
    have, reach, fault = 0.0, now - limits.after, "no sample"
    for one in sorted(samples, key=lambda one: one["t"]):
        bad = one.get("fault") or " ".join(f"{METERS[key]} not read" for key in METERS if one.get(key, 0) is None)
        if bad and one["t"] > now - limits.after:
            fault = bad
        elif not bad:
            have += max(0.0, min(one["t"], now) - max(one["t"] - one["s"], reach))
            reach = max(one["t"], reach)
    if have < limits.share * limits.after:
        return f"{fault}: {100 * have / limits.after:.0f}% of the window is known"
    return "" if reach >= now - FRESH else f"{fault} for {now - reach:.0f} s"
