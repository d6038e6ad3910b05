"""Fits the models of the adaptive spot policy to availability traces, and writes cloudgpu/core/spot/fitted.py.

    python benchmarks/spot/fit.py --traces DIR [--without us-west-2a] [--write]

It prints what it read and the models as JSON; `--write` replaces the shipped module. The same traces give the same
text: there is no randomness. It needs nothing but the plain install.

Every trace is sampled every 600 s and cut into windows of six days, each begun three days after the last one. In a
window it counts, for each bucket of age, how often spot went (or came back) and for how many hours that could have
happened. A mixture of constant rates per bucket explains the windows: expectation and maximisation, begun by sorting
the windows by availability. Each bucket is drawn towards the rate of all traces together by `PRIOR` hours of it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from cloudgpu.core.spot.replay.traces import Trace, parse_trace

TICK_S = 600.0
UP_FROM = (0, 1 / 6, 1 / 3, 1 / 2, 1, 2, 4, 8, 16)  # hours
DOWN_FROM = (0, 1 / 6, 1 / 2, 1, 2, 4, 8, 16)
MODELS = 3
WINDOW_H = 144
PRIOR = 1.0  # hours at the rates of all traces together
ROUNDS = 40
BEGUN = 2.0  # hours: the age of what a window begins with, which nobody knows
TARGET = Path(__file__).parents[2] / "cloudgpu" / "core" / "spot" / "fitted.py"
HEAD = '''"""Models of spot losses, as benchmarks/spot/fit.py wrote them. Do not edit."""

from __future__ import annotations
'''


@dataclass(frozen=True)
class Seen:
    """Changes and hours at risk for each bucket: those of available spot first."""

    changes: tuple[float, ...]
    hours: tuple[float, ...]

    def rates(self, prior: Sequence[float] | None = None, weight: float = PRIOR) -> list[float]:
        """Return the rate of each bucket per hour, drawn towards the prior by so many hours at its rates."""
        if prior is None:
            return [(n + 0.2) / (h + 0.8) for n, h in zip(self.changes, self.hours, strict=True)]
        rows = zip(self.changes, self.hours, prior, strict=True)
        return [(n + weight * rate) / (h + weight) for n, h, rate in rows]

    def likelihood(self, rates: Sequence[float]) -> float:
        """Return the logarithm of the likelihood of these rates."""
        rows = zip(self.changes, self.hours, rates, strict=True)
        return sum(n * log(rate) - h * rate for n, h, rate in rows)

    @property
    def share(self) -> float:
        """Return the share of the hours in which spot was available."""
        return sum(self.hours[: len(UP_FROM)]) / sum(self.hours)


def count(data: bytes, tick_h: float = TICK_S / 3600) -> Seen:
    """Count changes and hours at risk in availability, a byte a tick."""
    changes = [0.0] * (len(UP_FROM) + len(DOWN_FROM))
    hours = changes.copy()
    age = BEGUN
    for was, now in pairwise(data):
        ages, first = (UP_FROM, 0) if was else (DOWN_FROM, len(UP_FROM))
        bucket = first + sum(1 for start in ages if start <= age + 1e-9) - 1
        hours[bucket] += tick_h
        changes[bucket] += was != now
        age = age + tick_h if was == now else 0.0
    return Seen(tuple(changes), tuple(hours))


def summed(seen: Sequence[Seen], weights: Sequence[float] | None = None) -> Seen:
    """Add up counts, each with its weight."""
    weights = weights or [1.0] * len(seen)
    changes = [sum(w * s.changes[i] for w, s in zip(weights, seen, strict=True)) for i in range(len(seen[0].changes))]
    hours = [sum(w * s.hours[i] for w, s in zip(weights, seen, strict=True)) for i in range(len(seen[0].hours))]
    return Seen(tuple(changes), tuple(hours))


def fit(traces: Sequence[Trace], models: int = MODELS, window_h: float = WINDOW_H) -> dict[str, Any]:
    """Return the mixture as the policy reads it: chances, and rates per hour for each bucket."""
    sampled = [trace.sampled(TICK_S, 0, int(trace.seconds / TICK_S)) for trace in traces]
    pooled = summed([count(data) for data in sampled]).rates()
    length = int(window_h * 3600 / TICK_S)
    cuts = [data[at : at + length] for data in sampled for at in range(0, len(data) - length + 1, length // 2)]
    chances, rates = mixture([count(data) for data in cuts or sampled], pooled, models)
    up = len(UP_FROM)
    found = [
        {"chance": _round(chance), "loss": _rounded(rate[:up]), "back": _rounded(rate[up:])}
        for chance, rate in zip(chances, rates, strict=True)
    ]
    return {"up_from": _rounded(UP_FROM, 9), "down_from": _rounded(DOWN_FROM, 9), "models": found}


def mixture(seen: Sequence[Seen], pooled: Sequence[float], models: int) -> tuple[list[float], list[list[float]]]:
    """Return the chance and the rates of each model. Windows overlap by half, so each counts half."""
    order = sorted(range(len(seen)), key=lambda i: (seen[i].share, i))
    members = [[0.0] * len(seen) for _ in range(models)]
    for place, window in enumerate(order):
        members[place * models // len(seen)][window] = 1.0
    for _ in range(ROUNDS):
        chances = [(sum(of) + 0.5) / (len(seen) + 0.5 * models) for of in members]
        rates = [summed(seen, [weight / 2 for weight in of]).rates(pooled) for of in members]
        columns = [_shares([log(c) + s.likelihood(r) for c, r in zip(chances, rates, strict=True)]) for s in seen]
        members = [list(row) for row in zip(*columns, strict=True)]
    total = sum(chances)
    return [chance / total for chance in chances], rates


def text_of(fitted: dict[str, Any]) -> str:
    """Return the module that ships these models: JSON in a constant, as core reads no files."""
    quotes = '"' * 3
    return f"{HEAD}\nMODELS = {quotes}{json.dumps(fitted, indent=1)}{quotes}\n"


def read(folder: Path, without: str = "") -> list[Trace]:
    """Return the traces below a folder, by name; those with `without` in their names are left out."""
    files = sorted(folder.rglob("*.json"))
    named = [(str(file.relative_to(folder).with_suffix("")), file) for file in files]
    return [parse_trace(file.read_bytes(), name) for name, file in named if not without or without not in name]


def _shares(logs: Sequence[float]) -> list[float]:
    best = max(logs)
    found = [exp(value - best) for value in logs]
    return [value / sum(found) for value in found]


def _round(value: float, digits: int = 4) -> float:
    return round(float(value), digits)


def _rounded(values: Sequence[float], digits: int = 4) -> list[float]:
    return [_round(value, digits) for value in values]


def main() -> None:
    """Read, fit, and print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--without", default="", help="leave out traces with this in their names")
    parser.add_argument("--models", type=int, default=MODELS)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    traces = read(options.traces, options.without)
    for trace in traces:
        print(f"{trace.name}: {trace.seconds / 3600:.0f} h, spot available {trace.share:.0%}")
    text = text_of(fit(traces, options.models))
    if options.write:
        TARGET.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
