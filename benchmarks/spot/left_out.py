"""Asks of two things whether they help to foresee losses on zones that were not looked at: the time of day, and others.

Each availability zone is left out in turn. Of the others of the same months, the hazards of a loss and of a return by
age are counted, once alone and once times a factor for each three hours of the day. What is printed is how much better
age foresees the zone that was left out than one rate for all, and how much the time of day adds, in bits per event
(above 0: better). The traces do not say at which
hour they begin, but those of the same months begin together.

Then, of each two zones of the same months, GPU and size: how often the other has spot when one is lost, beside how
often it has spot at any time, and how often both are lost within half an hour, beside what chance would give.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from cloudgpu.core.spot.replay.traces import Trace, parse_trace

DAY_S, PARTS = 86_400, 8
AGES_S = (600, 1800, 3600, 2 * 3600, 4 * 3600, 8 * 3600, 16 * 3600)
AGE_BINS = range(len(AGES_S) + 1)
PRIOR = 20.0  # events of the mean that each part of the day begins with
NEAR_S = 1800


@dataclass(frozen=True)
class Tick:
    """One tick in which something could change: from which state, its age's bin, the part of the day, and whether."""

    up: bool
    age: int
    part: int
    changed: bool
    seconds: float


def ticks(trace: Trace) -> Iterator[Tick]:
    """Yield the ticks of a trace from its first change on: before, no age is known."""
    known, age = False, 0.0
    for number in range(1, len(trace.data)):
        before, now = trace.data[number - 1], trace.data[number]
        if known:
            age_bin = sum(age >= bound for bound in AGES_S)
            part = int(number * trace.interval_s % DAY_S * PARTS / DAY_S)
            yield Tick(bool(before), age_bin, part, before != now, trace.interval_s)
        age += trace.interval_s
        if before != now:
            known, age = True, trace.interval_s / 2


def gain(train: Sequence[Tick], test: Sequence[Tick]) -> tuple[float, float, int]:
    """Return by how many bits age, and then the time of day, improve the forecast of `test`, and how many events."""
    events, exposed = Counter[tuple[bool, int]](), Counter[tuple[bool, int]]()
    for one in train:
        events[one.up, one.age] += one.changed
        exposed[one.up, one.age] += one.seconds
    rate = {key: (events[key] + 0.5) / (exposed[key] + 1800) for key in exposed}
    seen, expected = defaultdict(float), defaultdict(float)
    for one in train:
        seen[one.up, one.part] += one.changed
        expected[one.up, one.part] += rate[one.up, one.age] * one.seconds
    factor = {key: (seen[key] + PRIOR) / (expected[key] + PRIOR) for key in expected}
    flat = {up: sum(events[up, n] for n in AGE_BINS) / sum(exposed[up, n] for n in AGE_BINS) for up in (False, True)}
    aged = bits = 0.0
    for one in test:
        plain = rate.get((one.up, one.age), 1e-5) * one.seconds
        timed = plain * factor.get((one.up, one.part), 1.0)
        usual = flat[one.up] * one.seconds
        aged += math.log2(_likely(plain, changed=one.changed) / _likely(usual, changed=one.changed))
        bits += math.log2(_likely(timed, changed=one.changed) / _likely(plain, changed=one.changed))
    return aged, bits, sum(one.changed for one in test)


def _likely(expected: float, *, changed: bool) -> float:
    stays = math.exp(-expected)
    return 1 - stays if changed else stays


def together(one: Trace, other: Trace) -> tuple[int, int, int, float]:
    """Return the losses of one, those at which the other has spot, those near a loss of the other, and by chance."""
    size = min(len(one.data), len(other.data))
    lost = [n for n in range(1, size) if one.data[n - 1] and not one.data[n]]
    others = [n for n in range(1, size) if other.data[n - 1] and not other.data[n]]
    near = NEAR_S / one.interval_s
    has = sum(other.data[n] for n in lost)
    close = sum(any(abs(n - m) <= near for m in others) for n in lost)
    chance = 1 - math.exp(-len(others) * (2 * near + 1) / size)
    return len(lost), has, close, chance * len(lost)


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, required=True, metavar="DIR", help="where the traces are")
    files = sorted(parser.parse_args().traces.rglob("*.json"))
    traces = {(file.parent.name, *file.stem.split("_", 1)): parse_trace(file.read_bytes(), file.stem) for file in files}
    of = {key: list(ticks(trace)) for key, trace in traces.items()}
    print("by months and zone that is left out, bits per event: age, then the time of day (events)")
    ages, bits, events = 0.0, 0.0, 0
    for months, zone in sorted({key[:2] for key in of}):
        train = [one for key, found in of.items() if key[0] == months and key[1] != zone for one in found]
        test = [one for key, found in of.items() if key[:2] == (months, zone) for one in found]
        aged, better, count = gain(train, test)
        ages, bits, events = ages + aged, bits + better, events + count
        print(f"  {months} {zone}: {aged / count:+.3f}, {better / count:+.3f} ({count})")
    print(f"  all: {ages / events:+.3f}, {bits / events:+.3f} ({events})")
    print("two zones: losses; the other has spot then, at any time; both lost within half an hour, by chance")
    for months, kind in sorted({(key[0], key[2]) for key in traces}):
        found = [trace for key, trace in traces.items() if (key[0], key[2]) == (months, kind)]
        pairs = [together(one, other) for one, other in permutations(found, 2)]
        lost = sum(pair[0] for pair in pairs)
        if lost:
            has, near, chance = (sum(pair[n] for pair in pairs) / lost for n in (1, 2, 3))
            usual = sum(other.share * pair[0] for (_, other), pair in zip(permutations(found, 2), pairs, strict=True))
            print(f"  {months} {kind}: {lost}; {has:.0%}, {usual / lost:.0%}; {near:.0%}, {chance:.0%}")


if __name__ == "__main__":
    main()
