"""The steps that lead to a recommendation, each with its sources, and what else is to be said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from cloudgpu.core.advice.desktop import USED_SOURCE
from cloudgpu.core.advice.desktop_build import BreakEven, Build, Circuit, PowerSupply, PriceKind
from cloudgpu.core.advice.model_memory import Method
from cloudgpu.core.advice.recommend import Machine
from cloudgpu.core.advice.recommendation import Answer
from cloudgpu.core.advice.workloads import Rules, Source
from cloudgpu.core.catalog.catalog import SpeedBasis, is_old, marketplace_notes
from cloudgpu.core.catalog.gpus import Work
from cloudgpu.core.model.offers import Basis, Market
from cloudgpu.core.values.money import Money
from cloudgpu.views.advice.recommend_sentences import (
    gib,
    number,
    of_memory,
    of_purchase,
    of_rent,
    of_speed,
    rented,
    span_text,
)

_REPORTED = Fraction(93, 100)  # of a board's memory, with error correction on


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the way to the answer."""

    title: str
    says: str
    sources: tuple[Source, ...] = ()


def steps(answer: Answer) -> Iterator[Step]:
    """Yield the steps in their order."""
    yield _memory_step(answer)
    yield _fits_step(answer)
    yield _speed_step(answer)
    yield _even_step(answer)
    if answer.power_supply is not None and answer.build is not None:
        yield Step("Power, slots, cooling", *power_step(answer.power_supply, answer.build, answer.rules))


def _memory_step(answer: Answer) -> Step:
    memory, model = answer.need.memory, answer.model
    sources = [part.source for part in memory.parts if part.source is not None]
    if model is not None and len(memory.parts) > 1:
        sources.insert(0, answer.kind.source)
    if model is None or len(memory.parts) == 1:
        by = "as you gave it" if not sources else f"the rule of thumb for {answer.kind.title}"
        return Step("Memory", f"{gib(memory.total)} on one GPU: {by}.", tuple(sources))
    parts = "; ".join(f"{part.what}: {gib(part.gib)}{_bytes_text(part.bytes_each)}" for part in memory.parts)
    done = "run" if model.method is Method.INFERENCE else f"trained ({model.method})"
    size = f"{model.parameters / 1e9:,g} billion parameters in {model.precision}"
    says = f"{size}, {done}, take {gib(memory.total)}: {parts}."
    others = [f"{gib(one.total)} with {method} in {precision}" for method, precision, one in answer.others]
    says += f" The same model would take {' or '.join(others)}." if others else ""
    return Step("Memory", says, tuple(sources))


def _bytes_text(bytes_each: Fraction | None) -> str:
    return "" if bytes_each is None else f" ({float(bytes_each):.3g} bytes each)"


def _fits_step(answer: Answer) -> Step:
    several = [said for said in (_split_machine(answer), _split_build(answer)) if said]
    specs = [one.spec for one in (answer.machine, answer.build) if one is not None]
    sources = (*of_memory(specs), *_exclusion_sources(answer))
    if not several:
        return Step("What fits", f"A GPU fits where all of it fits on one.{_left_out_step(answer)}", sources)
    once = "They count as so many times one, which no real work reaches."
    if answer.need.memory.fixed == answer.need.memory.total:
        says = f"{' '.join(several)} That is a rule for one GPU, so each holds all of it. {once}"
        return Step("What fits", says + _left_out_step(answer), sources)
    if answer.need.work is Work.INFERENCE:
        says = f"{' '.join(several)} The weights are split among them then: look for a fast link. {once}"
        return Step("What fits", says + _left_out_step(answer), sources)
    sharding = answer.rules.figures.sharding_percent
    says = (
        f"{' '.join(several)} Weights, gradients and optimizer are split among them then (ZeRO stage 3, FSDP): that is "
        f"{number(sharding.value)}% more communication, so look for a fast link. {once}"
    )
    return Step("What fits", says + _left_out_step(answer), (sharding.source, *sources))


def _exclusion_sources(answer: Answer) -> Iterator[Source]:
    figures, reasons = answer.rules.figures, " ".join(answer.left_out.values())
    if "older than Volta" in reasons:
        yield figures.oldest_capability.source
    if "older than Ampere" in reasons:
        yield figures.bf16_capability.source


def _is_tight(answer: Answer, machine: Machine) -> bool:
    """Say whether it fits only where a driver reports all that is on the board."""
    there = Fraction(str(machine.offer.type.gpu.memory_gib or 0))
    return answer.need.memory.on(machine.gpus) > there * _REPORTED


def _split_machine(answer: Answer) -> str:
    machine = answer.machine
    if machine is None or machine.gpus == 1:
        return ""
    why = "You asked for several" if answer.need.cards else "No machine with one GPU holds it"
    on = gib(answer.need.memory.on(machine.gpus))
    count = machine.offer.type.gpu.count
    these = f"{machine.gpus}" if machine.gpus == count else f"{machine.gpus} of the {count}"
    return f"{why}: on {these} {machine.spec.name} it is {on} on each."


def _split_build(answer: Answer) -> str:
    build = answer.build
    if build is None or build.cards == 1:
        return ""
    on = gib(answer.need.memory.on(build.cards))
    return f"Of the cards with a known price it takes {build.cards}: {on} on each {build.spec.name}."


def _left_out_step(answer: Answer) -> str:
    reasons: dict[str, list[str]] = {}
    for name, why in answer.left_out.items():
        reasons.setdefault(why, []).append(name)
    return "".join(f" Left out: {', '.join(names)} ({why})." for why, names in reasons.items())


def _speed_step(answer: Answer) -> Step:
    if answer.need.work is Work.INFERENCE:
        what = "Decoding reads all weights for every token, so that memory bandwidth decides the speed"
    else:
        what = "Training speed is measured PyTorch throughput against an H100, or a stand-in that is named"
    says = (
        f"{what}. The fewest GPUs come first, then the most work: of machines for a dollar of rent, of desktops for a "
        "dollar of their price."
    )
    machine, cheapest = answer.machine, answer.cheapest
    if machine is not None and machine.speed is not None:
        says += (
            f" One {machine.spec.name} does {machine.speed.value:.3f} of an H100's work "
            f"({_basis(machine.speed.basis)}); a dollar buys {machine.per_dollar:.3f} hours of an H100."
        )
    if machine is not None and cheapest is not None and cheapest.price < machine.price:
        says += f" The cheapest by the hour is {rented(cheapest)}."
    sources = () if machine is None else (of_speed(machine), of_rent(machine))
    return Step("Speed per dollar", says, tuple(source for source in sources if source is not None))


def _basis(basis: SpeedBasis) -> str:
    return "measured" if basis is SpeedBasis.MEASURED else f"by {basis}"


def _even_step(answer: Answer) -> Step:
    build, machine, even = answer.build, answer.machine, answer.break_even
    rest = Money.usd(int(answer.rules.figures.base_machine_usd.value)).text(0)
    if build is None or machine is None:
        missing = "desktop" if build is None else "machine"
        return Step("Rent or buy", f"There is no {missing} to compare with.")
    desktop = build.desktop
    years = number(Fraction(desktop.life // timedelta(days=1), 365))
    says = (
        f"The desktop: {build.cards} {build.spec.name} at {build.price.text(0)} ({build.price_kind}, {build.dated}) "
        f"and {rest} for the rest, {number(desktop.busy_power.watts)} W at work, {desktop.tariff.per_kwh.text(3)} a "
        f"kWh, {years} years (an assumption). Sold at the end it brings what a used one does: "
        f"{USED_SOURCE}. The machine: its list price, without disk and "
        "address."
    )
    sources = (*of_purchase(answer, build), of_rent(machine))
    if even is None:
        return Step("Rent or buy", f"{says} How fast one is compared with the other is not known.", sources)
    says += f" An hour of the desktop does {float(even.speed):.2f} hours of the machine ({even.speed_ratio.basis})."
    says += _hours(build, even, years)
    return Step("Rent or buy", says, sources)


def _hours(build: Build, even: BreakEven, years: str) -> str:
    if even.weekly_hours is None:
        return f" Over {years} years the desktop is never the cheaper one."
    hours = number(even.weekly_hours)
    says = f" From {hours} hours a week of the machine on, for {years} years, the desktop is cheaper."
    if even.hours is None:
        return says + " Say --hours-per-week to know when."
    if even.desktops > 1:
        says += f" {number(even.hours)} hours a week take {even.desktops} such desktops."
    if even.after is None:
        return says + f" At {number(even.hours)} they never meet."
    beyond = "" if even.after <= build.desktop.life else ", beyond its life"
    return says + f" At {number(even.hours)} they meet after {span_text(even.after)}{beyond}."


def remarks(answer: Answer, now: datetime) -> Iterator[str]:
    """Yield what else is to be said: of the kind of work, of prices that are old, missing or not listed."""
    if answer.free is not None:
        yield free_hours(answer)
    if answer.kind.remark:
        yield answer.kind.remark
    if answer.machine is not None:
        yield from _of_machine(answer, answer.machine, now)
    if answer.build is not None:
        yield from _of_cards(answer, answer.build, now)
    if answer.unpriced:
        yield f"These cards hold it, too, but no dated price is known: {', '.join(answer.unpriced)}."


def _of_machine(answer: Answer, machine: Machine, now: datetime) -> Iterator[str]:
    listed = machine.offer.listed.price
    doubt = {Basis.DERIVED: ", derived", Basis.RECALLED: ", recalled"}.get(listed.basis, "")
    old = ", old" if is_old(listed.as_of, now) else ""
    yield f"The price an hour is of {listed.as_of:%Y-%m-%d}{doubt}{old}; `cloudgpu up --dry-run` shows today's."
    yield from warnings(answer)


def free_hours(answer: Answer) -> str:
    """Return that Kaggle's free hours are enough for the work."""
    figures, number_of = answer.rules.figures, answer.free
    hours, session = (number(figure.value) for figure in (figures.kaggle_hours, figures.kaggle_session_hours))
    fits = "one of Kaggle's two" if number_of == 1 else "both of Kaggle's"
    return (
        f"Free: this work fits on {fits} T4 (16 GiB), about {hours} GPU hours a week in notebooks of "
        f"at most {session} hours."
    )


def warnings(answer: Answer) -> Iterator[str]:
    """Yield why the first machine's price or memory may not be what it says."""
    machine = answer.machine
    if machine is None:
        return
    listed, spot = machine.offer.listed.price, machine.offer.listed.market is Market.SPOT
    if spot and machine.offer.type.provider == "azure":
        yield "Azure's spot prices have moved since: many later ones equal the list price."
    if spot and listed.basis is Basis.DERIVED and machine.offer.type.provider == "aws":
        yield "EC2's spot price is the list price less published savings: off by -22% to +80% where observed."
    yield from marketplace_notes([one.offer for one in answer.machines])
    if _is_tight(answer, machine):
        yield f"It is tight on the {machine.spec.name}: {answer.rules.notes['tight'].text} (recalled)."


def _of_cards(answer: Answer, build: Build, now: datetime) -> Iterator[str]:
    card = build.spec.card
    if card is not None:
        old = " and old" if is_old(card.as_of, now) else ""
        note = f" {card.note[:1].upper()}{card.note[1:]}." if card.note else ""
        if build.price_kind is PriceKind.YOURS:
            yield f"The price of the {build.spec.name} is yours."
            return
        yield f"Prices of cards are of {build.dated}{old}: look what one costs where you are.{note}"
    within = {one.spec.name for one in answer.builds}
    beyond = dict.fromkeys(f"{one.cards}x {one.spec.name}" for one in answer.over_budget if one.spec.name not in within)
    if beyond:
        yield f"Beyond the budget: desktops with {', '.join(beyond)}."


_HOT = 300  # watts; from here on open-air cards are wide


def power_step(supply: PowerSupply, build: Build, rules: Rules) -> tuple[str, tuple[Source, ...]]:
    """Return what is said of a desktop's power, slots and cooling, and on what that rests."""
    parts = [*_supply(supply, build, rules), *_limit(supply, rules), *_space(supply, build, rules)]
    return " ".join(says for says, _ in parts), tuple(source for _, sources in parts for source in sources)


def watts(value: Fraction) -> str:
    """Return watts for people, rounded."""
    return f"{round(value):,} W"


SourcedText = tuple[str, tuple[Source, ...]]


def _supply(supply: PowerSupply, build: Build, rules: Rules) -> Iterator[SourcedText]:
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


def _limit(supply: PowerSupply, rules: Rules) -> Iterator[SourcedText]:
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


def _space(supply: PowerSupply, build: Build, rules: Rules) -> Iterator[SourcedText]:
    if supply.cards < 2:  # noqa: PLR2004
        return
    names = ["slots", "cooling", "lanes"] if build.desktop.gpu_power.watts >= _HOT else ["cooling", "lanes"]
    if supply.cards >= 4 and build.spec.name == "RTX3090":  # noqa: PLR2004  (of what was tried)
        names.append("quad")
    yield from ((rules.notes[name].text, (rules.notes[name].source,)) for name in names)
