"""Fits the small models of availability that ship in `cloudgpu/core/spot/replay/quote.py`, and prints them.

Takes the traces in a directory, in three groups by the share of time with spot. The same traces give the same lines.
"""

from __future__ import annotations

import argparse
import sys
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from cloudgpu.core.spot.replay.quote import EDGES_H, AvailabilityModel
from cloudgpu.core.spot.replay.traces import Trace, parse_trace

GROUPS = {"scarce": (0.0, 0.4), "mixed": (0.4, 0.7), "plenty": (0.7, 1.01)}  # by the share of time with spot


def main() -> None:
    """Print what was read, and one model a group."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, required=True, metavar="DIR", help="where the traces are")
    files = sorted(parser.parse_args().traces.rglob("*.json"))
    traces = [parse_trace(file.read_bytes(), f"{file.parent.name}/{file.stem}") for file in files]
    for trace in traces:
        print(f"# {trace.name}: {trace.seconds / 86_400:.1f} days, spot {trace.share:.0%} of the time")
    for name, (low, high) in GROUPS.items():
        print(f"{fit_rates(name, [trace for trace in traces if low <= trace.share < high])},")


def fit_rates(name: str, traces: list[Trace]) -> AvailabilityModel:
    """Return the rates of these traces: changes per hour at each age. The first stretch of a trace has no known age."""
    changes = {1: [0] * len(EDGES_H), 0: [0] * len(EDGES_H)}
    hours = {1: [0.0] * len(EDGES_H), 0: [0.0] * len(EDGES_H)}
    for trace in traces:
        age: float | None = None
        for before, now in pairwise(trace.data):
            if age is not None:
                bucket = sum(age + 1e-9 >= edge for edge in EDGES_H) - 1
                hours[before][bucket] += trace.interval_s / 3600
                changes[before][bucket] += now != before
                age += trace.interval_s / 3600
            age = 0.0 if now != before else age
    rates = {
        state: tuple(
            round(count / time, 4) if time else 0.0 for count, time in zip(changes[state], hours[state], strict=True)
        )
        for state in (0, 1)
    }
    samples = sum(len(trace.data) for trace in traces)
    share = round(sum(sum(trace.data) for trace in traces) / samples, 2)
    return AvailabilityModel(name, len(traces), share, rates[1], rates[0])


if __name__ == "__main__":
    main()
