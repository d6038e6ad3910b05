"""Splits one computer's electricity among the machines that run on it.

What the computer draws without its GPUs is split evenly among the machines that run at the time. What its GPUs draw is
split evenly among those whose agents measured a draw: each agent measures all GPUs while its machine uses any. Without
a measured draw, the GPUs count at their maximum, split among the machines without a measurement; a machine measured at
zero used none. So the shares never add up to more than the computer draws.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from cloudgpu.core.activity.utilization import MAX_SAMPLE_GAP_S, Sample

Run = tuple[float, float]  # (begin, end) in epoch seconds


class Draw(NamedTuple):
    """What GPUs drew on average from `begin` to `end`, in epoch seconds; None where nobody measured."""

    begin: float
    end: float
    watts: float | None


class Presence(NamedTuple):
    """When one machine of a computer ran, and what its samples measured, oldest first.

    `may_use_gpus`: whether the machine may use the computer's GPUs.
    """

    runs: Sequence[Run]
    draws: Sequence[Draw]
    may_use_gpus: bool


class ComputerShare(NamedTuple):
    """A machine's share of its computer in `seconds` of one run, in which at most `machines` ran at once.

    `rest_s` is for how many seconds it pays for all but the GPUs: half the time if two machines ran. `joules` is what
    GPUs drew for it in `measured_s` seconds. `unmeasured_s` is for how many seconds it pays the GPUs' maximum.
    """

    seconds: float
    rest_s: float
    joules: float
    measured_s: float
    unmeasured_s: float
    machines: int


def draws_of(samples: Iterable[Sample]) -> list[Draw]:
    """Return what GPUs drew by samples, oldest first. Where two samples overlap the earlier one counts."""
    draws: list[Draw] = []
    covered_until = 0.0
    for sample in samples:
        begin = max(sample["t"] - sample["s"], covered_until)
        begin = covered_until if begin - covered_until <= MAX_SAMPLE_GAP_S else begin
        if begin < sample["t"]:
            covered_until = sample["t"]
            draws.append(Draw(begin, covered_until, sample.get("power")))
    return draws


def share_of(machine_id: str, presences: Mapping[str, Presence], begin: float, end: float) -> ComputerShare:
    """Return a machine's share in [begin, end), in which it ran; `presences` are of all machines there, by id."""
    rest = joules = measured = unmeasured = 0.0
    max_present = 1
    for first, last in pairwise(_change_times(presences.values(), begin, end)):
        length_s = last - first
        present = {
            id_: presence
            for id_, presence in presences.items()
            if id_ == machine_id or any(begins <= first < ends for begins, ends in presence.runs)
        }
        watts = {id_: _watts_at(presence.draws, first) for id_, presence in present.items() if presence.may_use_gpus}
        gpu_users = [id_ for id_, drawn in watts.items() if drawn] or [
            id_ for id_, drawn in watts.items() if drawn is None
        ]
        drawn = watts.get(machine_id, 0.0)
        max_present = max(max_present, len(present))
        rest += length_s / len(present)
        measured += length_s if watts.get(machine_id) is not None else 0.0
        if drawn:
            joules += drawn * length_s / len(gpu_users)
        elif machine_id in gpu_users:
            unmeasured += length_s / len(gpu_users)
    return ComputerShare(end - begin, rest, joules, measured, unmeasured, max_present)


def _change_times(presences: Iterable[Presence], begin: float, end: float) -> list[float]:
    """Return `begin`, `end` and every moment between them at which a machine came or went, or was measured anew."""
    times = {begin, end}
    for presence in presences:
        times.update(at for run in presence.runs for at in run)
        times.update(at for draw in presence.draws for at in (draw.begin, draw.end))
    return sorted(time for time in times if begin <= time <= end)


def _watts_at(draws: Sequence[Draw], at: float) -> float | None:
    """Return the power measured at a time, or None."""
    index = bisect_right(draws, at, key=lambda draw: draw.end)
    return draws[index].watts if index < len(draws) and draws[index].begin <= at else None
