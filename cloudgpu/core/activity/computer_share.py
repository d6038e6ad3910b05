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

from cloudgpu.core.activity.utilization import MOMENT, Sample

Run = tuple[float, float]


class Draw(NamedTuple):
    """What GPUs drew on average from `begin` to `end`, in epoch seconds; None where nobody measured."""

    begin: float
    end: float
    watts: float | None


class Presence(NamedTuple):
    """When a machine ran, as (begin, end) in epoch seconds, and what its samples measured, oldest first.

    `gpus`: the computer's GPUs are the machine's, too.
    """

    runs: Sequence[Run]
    draws: Sequence[Draw]
    gpus: bool


class ComputerShare(NamedTuple):
    """A machine's share of its computer in `seconds` of one run, in which at most `machines` ran at once.

    `rest` is its share of the seconds, for all but the GPUs. `joules` is what GPUs drew for it in the `measured`
    seconds; `unmeasured` is its share of the seconds in which they count at their maximum.
    """

    seconds: float
    rest: float
    joules: float
    measured: float
    unmeasured: float
    machines: int


def draws_of(samples: Iterable[Sample]) -> list[Draw]:
    """Return what samples, oldest first, measured. Where two overlap the earlier one counts."""
    draws: list[Draw] = []
    reach = 0.0
    for sample in samples:
        begin = max(sample["t"] - sample["s"], reach)
        begin = reach if begin - reach <= MOMENT else begin
        if begin < sample["t"]:
            reach = sample["t"]
            draws.append(Draw(begin, reach, sample.get("power")))
    return draws


def share_of(machine: str, computer: Mapping[str, Presence], begin: float, end: float) -> ComputerShare:
    """Return a machine's share in [begin, end), in which it ran; `computer` has all machines that ran there, by id."""
    rest = joules = measured = unmeasured = 0.0
    most = 1
    for first, last in pairwise(_moments(computer.values(), begin, end)):
        part = last - first
        there = {
            id_: one
            for id_, one in computer.items()
            if id_ == machine or any(begins <= first < ends for begins, ends in one.runs)
        }
        watts = {id_: _watts_at(one.draws, first) for id_, one in there.items() if one.gpus}
        users = [id_ for id_, drawn in watts.items() if drawn] or [id_ for id_, drawn in watts.items() if drawn is None]
        drawn = watts.get(machine, 0.0)
        most = max(most, len(there))
        rest += part / len(there)
        measured += part if watts.get(machine) is not None else 0.0
        if drawn:
            joules += drawn * part / len(users)
        elif machine in users:
            unmeasured += part / len(users)
    return ComputerShare(end - begin, rest, joules, measured, unmeasured, most)


def _moments(computer: Iterable[Presence], begin: float, end: float) -> list[float]:
    """Return `begin`, `end` and every moment between them at which a machine came or went, or was measured anew."""
    cuts = {begin, end}
    for presence in computer:
        cuts.update(at for run in presence.runs for at in run)
        cuts.update(at for draw in presence.draws for at in (draw.begin, draw.end))
    return sorted(cut for cut in cuts if begin <= cut <= end)


def _watts_at(draws: Sequence[Draw], at: float) -> float | None:
    """Return the power measured at a time, or None."""
    place = bisect_right(draws, at, key=lambda draw: draw.end)
    return draws[place].watts if place < len(draws) and draws[place].begin <= at else None
