"""How long a machine was used in each hour that it was billed for, by its agent's samples.

What counts is what counts for idleness (`core.activity.idle`, docs/agent.md "What counts"), by the default thresholds
whatever a machine's policy says, so that machines can be compared. Each second is one of: GPU work, other use, idle,
unknown. A time without samples is unknown, or idle by the machine's `ActivityReport`. A sample's `power` is the mean of
watts that GPUs drew for the machine (`agent/own.py`), None if that could not be read. Its `gpus` is the mean number of
GPUs at work, counted as at least one if any was.
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

OWN_PROVIDER = "ssh"  # the provider whose machines are the user's; `local` plays on this very computer and owns nothing


Sample = Mapping[str, Any]
GPU, USED, IDLE, UNKNOWN = KINDS = ("gpu", "used", "idle", "unknown")
LIMITS = Thresholds()
CPU = LIMITS.cpu + BASE  # of one sample alone: what it shows itself is noise, up to BASE
HOUR = 3600
MOMENT = 1  # seconds: the stamps of samples that meet differ by so much
REPORT_EVERY_S = 660.0  # a machine in use says so every 10 minutes (`agent.WINDOW`), and its report takes a while


class UsageSpan(NamedTuple):
    """Whole epoch seconds of one kind, within one UTC hour. `joules` is what GPUs drew in them; None: not measured.

    `cards` are GPU-seconds of work in them: the sum over the GPUs; None: not counted, or no GPU worked.
    """

    begin: int
    end: int
    kind: str
    joules: float | None = None
    cards: float | None = None


class ActivityReport(NamedTuple):
    """A machine's own report, in epoch seconds: at `at` it reported that it was last in use at `active`.

    A time in between without samples is idle, except the last REPORT_EVERY_S: use in it may not be reported yet.
    """

    active: float
    at: float


@dataclass(frozen=True, slots=True)
class Hour:
    """Seconds of one UTC hour, which begins at `at`, that a machine was billed for; they add up to those.

    `gpu_s`: a GPU at 3% or more; `used_s`: any other use, and all use where no GPU is read. `joules` is what its GPUs
    drew for it, None where nobody measured; they drew it in `drawing` of these seconds. `cards` are seconds of GPUs at
    work, each counted by itself; they were counted in `counted` of the `gpu_s`.
    """

    at: datetime
    gpu_s: float
    used_s: float
    idle_s: float
    unknown_s: float
    joules: float | None = None
    drawing: float = 0.0
    cards: float = 0.0
    counted: float = 0.0


def kind_of(sample: Sample) -> str:
    """Return what one sample shows; a sign of use counts in one with a fault, too, as it does for idleness.

    It is what `core.reaper.replay.signs_of` finds by the default thresholds, in a hundredth of the time.
    """
    gpu = sample.get("gpu")
    if gpu is not None and gpu >= LIMITS.gpu:
        return GPU
    if _is_used(sample):
        return USED
    blind = sample.get("fault") or any(sample.get(name, 0) is None for name in METERS)
    return UNKNOWN if blind else IDLE


def _is_used(sample: Sample) -> bool:
    long = sample["s"] + 1.0
    typed, printed, kernel = sample.get("in"), sample.get("out"), sample.get("jup")
    return (
        (sample.get("cpu") or 0.0) >= CPU
        or (sample.get("net") or 0.0) >= LIMITS.network
        or (sample.get("disk") or 0.0) >= LIMITS.disk
        or bool(sample.get("busy") or sample.get("job"))
        or (typed is not None and typed < long)
        or (kernel is not None and kernel < long)
        or (printed is not None and printed < long and typed is not None and typed - printed <= LIMITS.terminal_output)
    )


def usage_intervals(samples: Iterable[Sample]) -> tuple[UsageSpan, ...]:
    """Return the use that samples (oldest first) show, adjacent equals joined. If two overlap, the earlier counts."""
    spans: list[UsageSpan] = []
    reach = 0
    for sample in samples:
        begin, end = max(round(sample["t"] - sample["s"]), reach), round(sample["t"])
        begin = reach if begin - reach <= MOMENT else begin
        if end > begin:
            kind = kind_of(sample)
            _put(spans, begin, end, kind, sample.get("power"), sample.get("gpus") if kind == GPU else None)
            reach = end
    return tuple(spans)


def _put(spans: list[UsageSpan], begin: int, end: int, kind: str, watts: float | None, gpus: float | None) -> None:
    """Add a piece, cut where an hour ends; what is like the piece before makes that longer."""
    while begin < end:
        stop = min(end, begin - begin % HOUR + HOUR)
        joules = None if watts is None else round(watts * (stop - begin), 3)
        cards = None if gpus is None else round(max(1.0, gpus) * (stop - begin), 3)
        last = spans[-1] if spans else None
        if last and last.end == begin and begin % HOUR and last.kind == kind and _alike(last, joules, cards):
            spans[-1] = UsageSpan(last.begin, stop, kind, _sum(last.joules, joules), _sum(last.cards, cards))
        else:
            spans.append(UsageSpan(begin, stop, kind, joules, cards))
        begin = stop


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else round(one + other, 3)


def _alike(last: UsageSpan, joules: float | None, cards: float | None) -> bool:
    """Say whether a span can be extended: power and GPUs are known for both or neither, and both drew power or not."""
    return (
        (last.joules is None) == (joules is None)
        and bool(last.joules) == bool(joules)
        and (last.cards is None) == (cards is None)
    )


def join_days(days: Iterable[Iterable[UsageSpan]]) -> list[UsageSpan]:
    """Return the spans of several days, oldest first, as one list in which none overlaps another."""
    spans: list[UsageSpan] = []
    reach = 0
    for one in (span for day in days for span in day):
        if one.end <= reach:
            continue
        begin = reach if one.begin - reach <= MOMENT else one.begin
        part = (one.end - begin) / (one.end - one.begin)
        joules, cards = one.joules and one.joules * part, one.cards and one.cards * part
        spans.append(one._replace(begin=begin, joules=joules, cards=cards))
        reach = one.end
    return spans


def hours(
    usages: Sequence[UsageSpan], runs: Iterable[tuple[float, float]], word: ActivityReport | None = None
) -> tuple[Hour, ...]:
    """Return the hours of billed runs (begin, end in epoch seconds), oldest first, with what the usages show of them.

    Runs may overlap: no second is billed twice here. `word` is of the last run.
    """
    billed = _merged(runs)
    if not usages and word is None:
        return _nothing_known(billed)
    sums: dict[int, list[float]] = defaultdict(lambda: [0.0] * len(_FIELDS))
    for begin, end in billed:
        for hour, first, last in _by_hour(begin, end):
            sums[hour][_BILLED] += last - first
        known = _within(usages, begin, end)
        said = _reported_spans(known, word, begin, end) if word and end == billed[-1][1] else ()
        for one in (*known, *said):
            _count(sums, one, begin, end)
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


_FIELDS = (*KINDS[:3], "billed", "joules", "drawing", "measured", "cards", "counted")
_BILLED, _JOULES, _DRAWING, _MEASURED, _CARDS, _COUNTED = range(3, 9)


def _merged(runs: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for begin, end in sorted(run for run in runs if run[0] < run[1]):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def _nothing_known(billed: Iterable[tuple[float, float]]) -> tuple[Hour, ...]:
    """Return the hours of runs, in order, of which nobody sampled anything: a large ledger has most of these."""
    sums: dict[int, float] = {}
    for begin, end in billed:
        first, last = int(begin // HOUR), int(end // HOUR)
        if first < last:
            sums[first] = sums.get(first, 0.0) + (first + 1) * HOUR - begin
            sums.update(dict.fromkeys(range(first + 1, last), float(HOUR)))
            begin = float(last * HOUR)  # noqa: PLW2901  (what is left)
        if begin < end:
            sums[last] = sums.get(last, 0.0) + end - begin
    return tuple(_unknown_hour(number, round(seconds, 6)) for number, seconds in sums.items())


def _unknown_hour(number: int, seconds: float) -> Hour:
    return _whole_hour(number) if seconds == HOUR else Hour(_utc(number), 0.0, 0.0, 0.0, seconds)


@cache
def _whole_hour(number: int) -> Hour:
    return Hour(_utc(number), 0.0, 0.0, 0.0, float(HOUR))


@cache
def _utc(number: int) -> datetime:
    return datetime.fromtimestamp(number * HOUR, UTC)


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


def _reported_spans(spans: Sequence[UsageSpan], word: ActivityReport, begin: float, end: float) -> Iterator[UsageSpan]:
    """Yield the gaps between the spans of a run, from the reported last use on, as idle."""
    reach, until = ceil(max(begin, word.active)), int(min(word.at - REPORT_EVERY_S, end))
    for span in spans:
        if reach < min(span.begin, until):
            yield UsageSpan(reach, min(span.begin, until), IDLE)
        reach = max(reach, span.end)
    if reach < until:
        yield UsageSpan(reach, until, IDLE)


def _count(sums: dict[int, list[float]], span: UsageSpan, begin: float, end: float) -> None:
    """Add the part of a span that lies within a run."""
    for hour, first, last in _by_hour(max(span.begin, begin), min(span.end, end)):
        part = last - first
        if span.kind != UNKNOWN:
            sums[hour][KINDS.index(span.kind)] += part
        if span.joules is not None:
            sums[hour][_JOULES] += span.joules * part / (span.end - span.begin)
            sums[hour][_DRAWING] += part if span.joules else 0.0
            sums[hour][_MEASURED] += part
        if span.cards is not None:
            sums[hour][_CARDS] += span.cards * part / (span.end - span.begin)
            sums[hour][_COUNTED] += part


def _hour(number: int, sums: Sequence[float]) -> Hour:
    gpu, used, idle, billed, joules, drawing, measured, cards, counted = sums
    at = datetime.fromtimestamp(number * HOUR, UTC)
    unknown = round(billed - gpu - used - idle, 6) or 0.0  # -0.0 is none
    drawn = round(joules, 3) if measured else None
    return Hour(at, gpu, used, idle, max(0.0, unknown), drawn, drawing, round(cards, 3), counted)
