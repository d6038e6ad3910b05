"""Fits the small models of availability that ship in `cloudgpu/core/spot/replay/quote.py`, and prints them.

Takes the traces in a directory, in three groups by the share of time with spot. The same traces give the same lines.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from cloudgpu.core.spot.replay.quote import fit_rates
from cloudgpu.core.spot.replay.traces import parse_trace

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


if __name__ == "__main__":
    main()
