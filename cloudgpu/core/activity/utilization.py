"""How long a machine was used in each hour that it was billed for, by its agent's samples.

What counts is what counts for idleness (`core.activity.idle`, docs/agent.md "What counts"), by the default thresholds
whatever a machine's policy says, so that machines can be compared. Each second is one of KINDS: GPU work, other use,
idle, unknown. A time without samples is unknown, or idle by the machine's `ActivityReport`. A sample's `power` is the
mean of watts that GPUs drew for the machine (`agent/own.py`), None if that could not be read. Its `gpus` is the mean
number of GPUs at work, counted as at least one if any was.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from math import ceil
from typing import Any, NamedTuple

from cloudgpu.core.activity.idle import BASE, METERS, Thresholds

OWN_PROVIDER = "ssh"  # the provider of the user's own machines; `local` only simulates machines on this computer


Sample = Mapping[str, Any]
GPU, USED, IDLE, UNKNOWN = KINDS = ("gpu", "used", "idle", "unknown")
LIMITS = Thresholds()  # from what on a reading counts as use
CPU_LIMIT = LIMITS.cpu + BASE  # cores in a single sample, which cannot tell background load (up to BASE) from use
HOUR = 3600
# Samples whose gap is no longer than this adjoin: the gap counts to the later one, and not as time without samples.
MAX_SAMPLE_GAP_S = 1
REPORT_EVERY_S = (
    660.0  # a machine in use says so every 10 minutes (the agent's ACTIVITY_WINDOW), and its report takes time
)


class UsageSpan(NamedTuple):
    """An interval of one kind of use (of KINDS), in whole epoch seconds, within one UTC hour.

    `joules` is what GPUs drew in it; None: not measured. `gpu_seconds` is the work in it, summed over its GPUs; None:
    not counted, or no GPU worked.
    """

    begin: int
    end: int
    kind: str
    joules: float | None = None
    gpu_seconds: float | None = None


class ActivityReport(NamedTuple):
    """A machine's own report, in epoch seconds: at `reported_at` it reported that it was last in use at `active_at`.

    Time between the two without samples is idle, except the last REPORT_EVERY_S: use in it may not be reported yet.
    """

    active_at: float
    reported_at: float


@dataclass(frozen=True, slots=True)
class Hour:
    """The billed seconds of a machine in the UTC hour that begins at `at`; the first four kinds add up to all of them.

    `gpu_s`: a GPU at 3% or more; `used_s`: any other use, and all use where no GPU is read. `joules` is what its GPUs
    drew for it, None where nobody measured; `drawing_s` is in how many seconds they drew it. `gpu_seconds` are
    GPU-seconds of work: two GPUs at work for a second are 2; they were counted in `counted_s` of the `gpu_s`.
    """

    at: datetime
    gpu_s: float
    used_s: float
    idle_s: float
    unknown_s: float
    joules: float | None = None
    drawing_s: float = 0.0
    gpu_seconds: float = 0.0
    counted_s: float = 0.0


def kind_of(sample: Sample) -> str:
    """Return the kind of use that one sample shows; a sign of use counts even if other readings failed.

    `core.reaper.replay.signs_of` finds the same by the default thresholds, and takes a hundred times as long.
    """
    gpu = sample.get("gpu")
    if gpu is not None and gpu >= LIMITS.gpu:
        return GPU
    if _is_used(sample):
        return USED
    is_incomplete = sample.get("fault") or any(sample.get(name, 0) is None for name in METERS)
    return UNKNOWN if is_incomplete else IDLE


def _is_used(sample: Sample) -> bool:
    recent_s = sample["s"] + 1.0
    typed, printed, kernel = sample.get("in"), sample.get("out"), sample.get("jup")
    return (
        (sample.get("cpu") or 0.0) >= CPU_LIMIT
        or (sample.get("net") or 0.0) >= LIMITS.network
        or (sample.get("disk") or 0.0) >= LIMITS.disk
        or bool(sample.get("busy") or sample.get("job"))
        or (typed is not None and typed < recent_s)
        or (kernel is not None and kernel < recent_s)
        or (
            printed is not None
            and printed < recent_s
            and typed is not None
            and typed - printed <= LIMITS.terminal_output
        )
    )


def usage_intervals(samples: Iterable[Sample]) -> tuple[UsageSpan, ...]:
    """Return the use that samples (oldest first) show, adjacent equals joined. If two overlap, the earlier counts."""
    spans: list[UsageSpan] = []
    covered_until = 0
    for sample in samples:
        begin, end = max(round(sample["t"] - sample["s"]), covered_until), round(sample["t"])
        begin = covered_until if begin - covered_until <= MAX_SAMPLE_GAP_S else begin
        if end > begin:
            kind = kind_of(sample)
            _add_usage(spans, begin, end, kind, sample.get("power"), sample.get("gpus") if kind == GPU else None)
            covered_until = end
    return tuple(spans)


def _add_usage(
    spans: list[UsageSpan], begin: int, end: int, kind: str, watts: float | None, gpus: float | None
) -> None:
    """Add an interval, split at the ends of hours; one that is like the last span extends it."""
    while begin < end:
        stop = min(end, begin - begin % HOUR + HOUR)
        joules = None if watts is None else round(watts * (stop - begin), 3)
        gpu_seconds = None if gpus is None else round(max(1.0, gpus) * (stop - begin), 3)
        last = spans[-1] if spans else None
        if last and last.end == begin and begin % HOUR and last.kind == kind and _can_extend(last, joules, gpu_seconds):
            spans[-1] = UsageSpan(
                last.begin, stop, kind, _sum(last.joules, joules), _sum(last.gpu_seconds, gpu_seconds)
            )
        else:
            spans.append(UsageSpan(begin, stop, kind, joules, gpu_seconds))
        begin = stop


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else round(one + other, 3)


def _can_extend(last: UsageSpan, joules: float | None, gpu_seconds: float | None) -> bool:
    """Return whether the last span can be extended by an interval with these: both measured or neither, alike."""
    return (
        (last.joules is None) == (joules is None)
        and bool(last.joules) == bool(joules)
        and (last.gpu_seconds is None) == (gpu_seconds is None)
    )


def join_days(days: Iterable[Iterable[UsageSpan]]) -> list[UsageSpan]:
    """Return the spans of several days, oldest first, as one list in which none overlaps another."""
    spans: list[UsageSpan] = []
    covered_until = 0
    for one in (span for day in days for span in day):
        if one.end <= covered_until:
            continue
        begin = covered_until if one.begin - covered_until <= MAX_SAMPLE_GAP_S else one.begin
        share = (one.end - begin) / (one.end - one.begin)
        joules, gpu_seconds = one.joules and one.joules * share, one.gpu_seconds and one.gpu_seconds * share
        spans.append(one._replace(begin=begin, joules=joules, gpu_seconds=gpu_seconds))
        covered_until = one.end
    return spans


def hours(
    usages: Sequence[UsageSpan], runs: Iterable[tuple[float, float]], report: ActivityReport | None = None
) -> tuple[Hour, ...]:
    """Return the hours of billed runs (begin, end in epoch seconds), oldest first, with what the usages show of them.

    Runs may overlap: no second is billed twice here. `report` is of the last run.
    """
    billed = _merged(runs)
    if not usages and report is None:
        return _unknown_hours(billed)
    sums: dict[int, list[float]] = defaultdict(lambda: [0.0] * len(_FIELDS))
    for begin, end in billed:
        for hour, first, last in _by_hour(begin, end):
            sums[hour][_BILLED] += last - first
        known = _within(usages, begin, end)
        reported = _reported_spans(known, report, begin, end) if report and end == billed[-1][1] else ()
        for one in (*known, *reported):
            _add_span(sums, one, begin, end)
    return tuple(_hour(number, sums[number]) for number in sorted(sums))


def mean_draw(usages: Sequence[UsageSpan], begin: float, end: float) -> tuple[float, float] | None:
    """Return the mean watts that GPUs drew in [begin, end), and for how many seconds of it they were measured.

    None if they were not measured.
    """
    seconds = joules = 0.0
    for span in _within(usages, begin, end):
        inside = min(span.end, end) - max(span.begin, begin)
        if span.joules is not None and inside > 0:
            seconds += inside
            joules += span.joules * inside / (span.end - span.begin)
    return (joules / seconds, seconds) if seconds else None


# What is summed for an hour, in this order: seconds of each kind but UNKNOWN, billed seconds, joules, and so on.
_FIELDS = (*KINDS[:3], "billed", "joules", "drawing", "measured", "cards", "counted")
_BILLED, _JOULES, _DRAWING, _MEASURED, _CARDS, _COUNTED = range(3, 9)


def _merged(runs: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(run for run in runs if run[0] < run[1]):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _unknown_hours(billed: Iterable[tuple[float, float]]) -> tuple[Hour, ...]:
    """Return the hours of runs, in order, of which nobody sampled anything: a large ledger has most of these."""
    sums: dict[int, float] = {}
    for begin, end in billed:
        first, last = int(begin // HOUR), int(end // HOUR)
        if first < last:
            sums[first] = sums.get(first, 0.0) + (first + 1) * HOUR - begin
            sums.update(dict.fromkeys(range(first + 1, last), float(HOUR)))
            begin = float(last * HOUR)  # noqa: PLW2901  (the last hour)
        if begin < end:
            sums[last] = sums.get(last, 0.0) + end - begin
    return tuple(_unknown_hour(number, round(seconds, 6)) for number, seconds in sums.items())


def _unknown_hour(hour_number: int, seconds: float) -> Hour:
    return _whole_hour(hour_number) if seconds == HOUR else Hour(_utc(hour_number), 0.0, 0.0, 0.0, seconds)


@cache
def _whole_hour(hour_number: int) -> Hour:
    return Hour(_utc(hour_number), 0.0, 0.0, 0.0, float(HOUR))


@cache
def _utc(hour_number: int) -> datetime:
    return datetime.fromtimestamp(hour_number * HOUR, UTC)


def _by_hour(begin: float, end: float) -> Iterator[tuple[int, float, float]]:
    """Yield (number of the hour since 1970, begin, end) for each hour of an interval."""
    while begin < end:
        hour = int(begin // HOUR)
        stop = min(end, float((hour + 1) * HOUR))
        yield hour, begin, stop
        begin = stop


def _within(spans: Sequence[UsageSpan], begin: float, end: float) -> Sequence[UsageSpan]:
    first = bisect_left(spans, begin, key=lambda span: span.end)
    return spans[first : bisect_left(spans, end, key=lambda span: span.begin)]


def _reported_spans(
    spans: Sequence[UsageSpan], report: ActivityReport, begin: float, end: float
) -> Iterator[UsageSpan]:
    """Yield the gaps between the spans of a run, from the reported last use on, as idle."""
    covered_until, until = ceil(max(begin, report.active_at)), int(min(report.reported_at - REPORT_EVERY_S, end))
    for span in spans:
        if covered_until < min(span.begin, until):
            yield UsageSpan(covered_until, min(span.begin, until), IDLE)
        covered_until = max(covered_until, span.end)
    if covered_until < until:
        yield UsageSpan(covered_until, until, IDLE)


def _add_span(sums: dict[int, list[float]], span: UsageSpan, begin: float, end: float) -> None:
    """Add the part of a span that lies within a run."""
    for hour, first, last in _by_hour(max(span.begin, begin), min(span.end, end)):
        length_s = last - first
        if span.kind != UNKNOWN:
            sums[hour][KINDS.index(span.kind)] += length_s
        if span.joules is not None:
            sums[hour][_JOULES] += span.joules * length_s / (span.end - span.begin)
            sums[hour][_DRAWING] += length_s if span.joules else 0.0
            sums[hour][_MEASURED] += length_s
        if span.gpu_seconds is not None:
            sums[hour][_CARDS] += span.gpu_seconds * length_s / (span.end - span.begin)
            sums[hour][_COUNTED] += length_s


def _hour(hour_number: int, sums: Sequence[float]) -> Hour:
    gpu, used, idle, billed, joules, drawing, measured, gpu_seconds, counted = sums
    at = datetime.fromtimestamp(hour_number * HOUR, UTC)
    unknown = round(billed - gpu - used - idle, 6) or 0.0  # 0.0 in place of -0.0
    drawn = round(joules, 3) if measured else None
    return Hour(at, gpu, used, idle, max(0.0, unknown), drawn, drawing, round(gpu_seconds, 3), counted)
