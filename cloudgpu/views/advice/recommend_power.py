"""What several cards in one desktop ask for, in sentences: supply, circuit, power limit, slots, cooling."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from cloudgpu.core.advice.desktop_build import Build, Circuit, PowerSupply
from cloudgpu.core.advice.workloads import Rules, Source

_HOT = 300  # watts; from here on open-air cards are wide


def power_step(supply: PowerSupply, build: Build, rules: Rules) -> tuple[str, tuple[Source, ...]]:
    """Return the notes on a desktop's power, slots and cooling, with their sources."""
    parts = [*_supply(supply, build, rules), *_limit(supply, rules), *_space(supply, build, rules)]
    return " ".join(says for says, _ in parts), tuple(source for _, sources in parts for source in sources)


def watts(value: Fraction) -> str:
    """Return watts for people, rounded."""
    return f"{round(value):,} W"


Said = tuple[str, tuple[Source, ...]]


def _supply(supply: PowerSupply, build: Build, rules: Rules) -> Iterator[Said]:
    figures = rules.figures
    card = build.desktop.gpu_power.watts
    low, high = figures.supply_low_percent, figures.supply_high_percent
    yield (
        (
            f"{supply.cards} x {watts(card)} and {watts(supply.draw.watts - supply.cards * card)} for the rest are "
            f"{watts(supply.draw.watts)}; with {low.value} to {high.value}% more, take a power supply of "
            f"{round(supply.low.watts):,} to {watts(supply.high.watts)}."
        ),
        (low.source,),
    )
    if supply.circuit is not Circuit.CARRIES:
        yield (
            (
                f"A circuit of {figures.circuit_volts.value} V and {figures.circuit_amperes.value} A, as in US homes, "
                f"{supply.circuit}: it supplies {watts(supply.continuous.watts)} for hours and "
                f"{watts(supply.breaker.watts)} at most. At 230 V a circuit supplies about twice as much."
            ),
            (figures.continuous_percent.source,),
        )


def _limit(supply: PowerSupply, rules: Rules) -> Iterator[Said]:
    if supply.cards < 2:  # noqa: PLR2004  (one card seldom needs it)
        return
    figures = rules.figures
    yield (
        (
            f"With every card's limit {watts(figures.limit_watts.value)} lower (nvidia-smi -pl) they are "
            f"{watts(supply.limited.watts)}; that cost an RTX 2080 Ti about {figures.limit_cost_percent.value}% of its "
            f"speed. {rules.notes['limit'].text}"
        ),
        (figures.limit_cost_percent.source, rules.notes["limit"].source),
    )


def _space(supply: PowerSupply, build: Build, rules: Rules) -> Iterator[Said]:
    if supply.cards < 2:  # noqa: PLR2004
        return
    names = ["slots", "cooling", "lanes"] if build.desktop.gpu_power.watts >= _HOT else ["cooling", "lanes"]
    if supply.cards >= 4 and build.spec.name == "RTX3090":  # noqa: PLR2004  (of what was tried)
        names.append("quad")
    yield from ((rules.notes[name].text, (rules.notes[name].source,)) for name in names)
