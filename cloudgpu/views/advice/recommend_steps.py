"""The steps that lead to a recommendation, each with its sources; and its notes and warnings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from cloudgpu.core.advice.desktop import USED_SOURCE
from cloudgpu.core.advice.desktop_build import BreakEven, Build, Circuit, PowerSupply, PriceKind
from cloudgpu.core.advice.model_memory import Method
from cloudgpu.core.advice.recommend import FittingOffer
from cloudgpu.core.advice.recommendation import Recommendation
from cloudgpu.core.advice.workloads import Source, WorkloadData
from cloudgpu.core.catalog.catalog import SpeedBasis, is_old_price, marketplace_notes
from cloudgpu.core.catalog.gpus import Workload
from cloudgpu.core.model.offers import Basis, Market
from cloudgpu.core.values.money import Money
from cloudgpu.views.advice.recommend_sentences import (
    duration_text,
    gib_text,
    memory_sources,
    number_text,
    purchase_sources,
    rent_source,
    rented_text,
    speed_source,
)

_REPORTED_SHARE = Fraction(93, 100)  # of a board's memory that a driver reports with error correction on


@dataclass(frozen=True, slots=True)
class Step:
    """One step that leads to the answer: `text` is a paragraph."""

    title: str
    text: str
    sources: tuple[Source, ...] = ()


def steps(answer: Recommendation) -> Iterator[Step]:
    """Yield the steps in their order."""
    yield _memory_step(answer)
    yield _fits_step(answer)
    yield _speed_step(answer)
    yield _rent_or_buy_step(answer)
    if answer.power_supply is not None and answer.build is not None:
        yield Step("Power, slots, cooling", *power_step(answer.power_supply, answer.build, answer.workload_data))


def _memory_step(answer: Recommendation) -> Step:
    memory, model = answer.need.memory, answer.model
    sources = [part.source for part in memory.parts if part.source is not None]
    if model is not None and len(memory.parts) > 1:
        sources.insert(0, answer.kind.source)
    if model is None or len(memory.parts) == 1:
        basis = "as you gave it" if not sources else f"the rule of thumb for {answer.kind.title}"
        return Step("Memory", f"{gib_text(memory.total)} on one GPU: {basis}.", tuple(sources))
    parts = "; ".join(
        f"{part.label}: {gib_text(part.gib)}{_bytes_text(part.bytes_per_parameter)}" for part in memory.parts
    )
    method_text = "run" if model.method is Method.INFERENCE else f"trained ({model.method})"
    size = f"{model.parameters / 1e9:,g} billion parameters in {model.precision}"
    text = f"{size}, {method_text}, take {gib_text(memory.total)}: {parts}."
    alternatives = [
        f"{gib_text(memory_need.total)} with {method} in {precision}"
        for method, precision, memory_need in answer.other_methods
    ]
    text += f" The same model would take {' or '.join(alternatives)}." if alternatives else ""
    return Step("Memory", text, tuple(sources))


def _bytes_text(bytes_each: Fraction | None) -> str:
    return "" if bytes_each is None else f" ({float(bytes_each):.3g} bytes each)"


def _fits_step(answer: Recommendation) -> Step:
    split_texts = [sentence for sentence in (_split_machine(answer), _split_build(answer)) if sentence]
    specs = [one.spec for one in (answer.machine, answer.build) if one is not None]
    sources = (*memory_sources(specs), *_exclusion_sources(answer))
    if not split_texts:
        return Step("What fits", f"A GPU fits where all of it fits on one.{_left_out_text(answer)}", sources)
    speedup_note = "They count as so many times one, which no real work reaches."
    if answer.need.memory.fixed == answer.need.memory.total:
        text = f"{' '.join(split_texts)} That is a rule for one GPU, so each holds all of it. {speedup_note}"
        return Step("What fits", text + _left_out_text(answer), sources)
    if answer.need.work is Workload.INFERENCE:
        text = f"{' '.join(split_texts)} The weights are split among them then: look for a fast link. {speedup_note}"
        return Step("What fits", text + _left_out_text(answer), sources)
    sharding = answer.workload_data.figures.sharding_percent
    text = (
        f"{' '.join(split_texts)} Weights, gradients and optimizer are split among them then (ZeRO stage 3, FSDP): "
        f"that is {number_text(sharding.value)}% more communication, so look for a fast link. {speedup_note}"
    )
    return Step("What fits", text + _left_out_text(answer), (sharding.source, *sources))


def _exclusion_sources(answer: Recommendation) -> Iterator[Source]:
    figures, reasons = answer.workload_data.figures, " ".join(answer.left_out.values())
    if "older than Volta" in reasons:
        yield figures.oldest_capability.source
    if "older than Ampere" in reasons:
        yield figures.bf16_capability.source


def _is_tight(answer: Recommendation, machine: FittingOffer) -> bool:
    """Return whether the work fits only if the driver reports all of the board's memory."""
    board_gib = Fraction(str(machine.offer.type.gpu.memory_gib or 0))
    return answer.need.memory.gib_per_gpu(machine.gpus) > board_gib * _REPORTED_SHARE


def _split_machine(answer: Recommendation) -> str:
    machine = answer.machine
    if machine is None or machine.gpus == 1:
        return ""
    why = "You asked for several" if answer.need.cards else "No machine with one GPU holds it"
    per_gpu = gib_text(answer.need.memory.gib_per_gpu(machine.gpus))
    count = machine.offer.type.gpu.count
    gpus_text = f"{machine.gpus}" if machine.gpus == count else f"{machine.gpus} of the {count}"
    return f"{why}: on {gpus_text} {machine.spec.name} it is {per_gpu} on each."


def _split_build(answer: Recommendation) -> str:
    build = answer.build
    if build is None or build.cards == 1:
        return ""
    per_gpu = gib_text(answer.need.memory.gib_per_gpu(build.cards))
    return f"Of the cards with a known price it takes {build.cards}: {per_gpu} on each {build.spec.name}."


def _left_out_text(answer: Recommendation) -> str:
    reasons: dict[str, list[str]] = {}
    for name, reason in answer.left_out.items():
        reasons.setdefault(reason, []).append(name)
    return "".join(f" Left out: {', '.join(names)} ({reason})." for reason, names in reasons.items())


def _speed_step(answer: Recommendation) -> Step:
    if answer.need.work is Workload.INFERENCE:
        rule = "Decoding reads all weights for every token, so that memory bandwidth decides the speed"
    else:
        rule = "Training speed is measured PyTorch throughput against an H100, or a stand-in that is named"
    text = (
        f"{rule}. The fewest GPUs come first, then the most work: of machines for a dollar of rent, of desktops for a "
        "dollar of their price."
    )
    machine, cheapest = answer.machine, answer.cheapest
    if machine is not None and machine.speed is not None:
        basis = "measured" if machine.speed.basis is SpeedBasis.MEASURED else f"by {machine.speed.basis}"
        text += (
            f" One {machine.spec.name} does {machine.speed.vs_h100:.3f} of an H100's work "
            f"({basis}); a dollar buys {machine.per_dollar:.3f} hours of an H100."
        )
    if machine is not None and cheapest is not None and cheapest.price < machine.price:
        text += f" The cheapest by the hour is {rented_text(cheapest)}."
    sources = () if machine is None else (speed_source(machine), rent_source(machine))
    return Step("Speed per dollar", text, tuple(source for source in sources if source is not None))


def _rent_or_buy_step(answer: Recommendation) -> Step:
    build, machine, break_even = answer.build, answer.machine, answer.break_even
    rest_price = Money.usd(int(answer.workload_data.figures.base_machine_usd.value)).text(0)
    if build is None or machine is None:
        missing = "desktop" if build is None else "machine"
        return Step("Rent or buy", f"There is no {missing} to compare with.")
    desktop = build.desktop
    years = number_text(Fraction(desktop.life // timedelta(days=1), 365))
    text = (
        f"The desktop: {build.cards} {build.spec.name} at {build.price.text(0)} ({build.price_kind}, {build.dated}) "
        f"and {rest_price} for the rest, {number_text(desktop.busy_power.watts)} W at work, "
        f"{desktop.tariff.per_kwh.text(3)} a kWh, {years} years (an assumption). Sold at the end it brings what a used "
        f"one does: {USED_SOURCE}. The machine: its list price, without disk and "
        "address."
    )
    sources = (*purchase_sources(answer, build), rent_source(machine))
    if break_even is None:
        return Step("Rent or buy", f"{text} How fast one is compared with the other is not known.", sources)
    basis = break_even.speed_ratio.basis
    text += f" An hour of the desktop does {float(break_even.speed):.2f} hours of the machine ({basis})."
    text += _break_even_text(build, break_even, years)
    return Step("Rent or buy", text, sources)


def _break_even_text(build: Build, break_even: BreakEven, years: str) -> str:
    if break_even.weekly_hours is None:
        return f" Over {years} years the desktop is never the cheaper one."
    hours = number_text(break_even.weekly_hours)
    text = f" From {hours} hours a week of the machine on, for {years} years, the desktop is cheaper."
    if break_even.hours is None:
        return text + " Say --hours-per-week to know when."
    if break_even.desktops > 1:
        text += f" {number_text(break_even.hours)} hours a week take {break_even.desktops} such desktops."
    if break_even.after is None:
        return text + f" At {number_text(break_even.hours)} they never meet."
    beyond = "" if break_even.after <= build.desktop.life else ", beyond its life"
    return text + f" At {number_text(break_even.hours)} they meet after {duration_text(break_even.after)}{beyond}."


def remarks(answer: Recommendation, now: datetime) -> Iterator[str]:
    """Yield notes: on the kind of work, and on prices that are old, missing or not listed."""
    if answer.kaggle_gpus is not None:
        yield free_hours_sentence(answer)
    if answer.kind.remark:
        yield answer.kind.remark
    if answer.machine is not None:
        yield from _machine_notes(answer, answer.machine, now)
    if answer.build is not None:
        yield from _card_notes(answer, answer.build, now)
    if answer.unpriced:
        yield f"These cards hold it, too, but no dated price is known: {', '.join(answer.unpriced)}."


def _machine_notes(answer: Recommendation, machine: FittingOffer, now: datetime) -> Iterator[str]:
    listed = machine.offer.listed.price
    basis_note = {Basis.DERIVED: ", derived", Basis.UNVERIFIED: ", unverified"}.get(listed.basis, "")
    old = ", old" if is_old_price(listed.as_of, now) else ""
    yield f"The price an hour is of {listed.as_of:%Y-%m-%d}{basis_note}{old}; `cloudgpu up --dry-run` shows today's."
    yield from warnings(answer)


def free_hours_sentence(answer: Recommendation) -> str:
    """Return that Kaggle's free hours are enough for the work."""
    figures, gpus = answer.workload_data.figures, answer.kaggle_gpus
    hours, session = (number_text(figure.value) for figure in (figures.kaggle_hours, figures.kaggle_session_hours))
    fits = "one of Kaggle's two" if gpus == 1 else "both of Kaggle's"
    return (
        f"Free: this work fits on {fits} T4 (16 GiB), about {hours} GPU hours a week in notebooks "
        f"of at most {session} hours."
    )


def warnings(answer: Recommendation) -> Iterator[str]:
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
        yield f"It is tight on the {machine.spec.name}: {answer.workload_data.notes['tight'].text} (unverified)."


def _card_notes(answer: Recommendation, build: Build, now: datetime) -> Iterator[str]:
    card_prices = build.spec.card_prices
    if card_prices is not None:
        old = " and old" if is_old_price(card_prices.as_of, now) else ""
        note = f" {card_prices.note[:1].upper()}{card_prices.note[1:]}." if card_prices.note else ""
        if build.price_kind is PriceKind.YOURS:
            yield f"The price of the {build.spec.name} is yours."
            return
        yield f"Prices of cards are of {build.dated}{old}: look what one costs where you are.{note}"
    affordable = {one.spec.name for one in answer.builds}
    too_expensive = dict.fromkeys(
        f"{one.cards}x {one.spec.name}" for one in answer.over_budget if one.spec.name not in affordable
    )
    if too_expensive:
        yield f"Beyond the budget: desktops with {', '.join(too_expensive)}."


_HOT_WATTS = 300  # cards that draw as much or more are wide, if they are cooled by open-air fans


def power_step(supply: PowerSupply, build: Build, workload_data: WorkloadData) -> tuple[str, tuple[Source, ...]]:
    """Return the text about a desktop's power, slots and cooling, and its sources."""
    parts = [
        *_supply_texts(supply, build, workload_data),
        *_limit_texts(supply, workload_data),
        *_space_texts(supply, build, workload_data),
    ]
    return " ".join(text for text, _ in parts), tuple(source for _, sources in parts for source in sources)


def watts_text(value: Fraction) -> str:
    """Return watts for people, rounded."""
    return f"{round(value):,} W"


SourcedText = tuple[str, tuple[Source, ...]]


def _supply_texts(supply: PowerSupply, build: Build, workload_data: WorkloadData) -> Iterator[SourcedText]:
    figures = workload_data.figures
    watts = build.desktop.gpu_power.watts
    low, high = figures.supply_low_percent, figures.supply_high_percent
    yield (
        (
            f"{supply.cards} x {watts_text(watts)} and {watts_text(supply.draw.watts - supply.cards * watts)} for the "
            f"rest are {watts_text(supply.draw.watts)}; with {low.value} to {high.value}% more, take a power supply "
            f"of {round(supply.low.watts):,} to {watts_text(supply.high.watts)}."
        ),
        (low.source,),
    )
    if supply.circuit is not Circuit.CARRIES:
        yield (
            (
                f"Its losses make them {watts_text(supply.wall.watts)} at the wall (at "
                f"{figures.supply_efficiency_percent.value}% efficiency). "
                f"A circuit of {figures.circuit_volts.value} V and {figures.circuit_amperes.value} A, as in US "
                f"homes, {supply.circuit}: it supplies {watts_text(supply.continuous.watts)} for hours and "
                f"{watts_text(supply.breaker.watts)} at most. At 230 V a circuit supplies about twice as much."
            ),
            (figures.continuous_percent.source, figures.supply_efficiency_percent.source),
        )


def _limit_texts(supply: PowerSupply, workload_data: WorkloadData) -> Iterator[SourcedText]:
    if supply.cards < 2:  # noqa: PLR2004  (one card seldom needs it)
        return
    figures = workload_data.figures
    yield (
        (
            f"With every card's limit {watts_text(figures.limit_watts.value)} lower (nvidia-smi -pl) they are "
            f"{watts_text(supply.limited.watts)}; that cost an RTX 2080 Ti about {figures.limit_cost_percent.value}% "
            f"of its speed. {workload_data.notes['limit'].text}"
        ),
        (figures.limit_cost_percent.source, workload_data.notes["limit"].source),
    )


def _space_texts(supply: PowerSupply, build: Build, workload_data: WorkloadData) -> Iterator[SourcedText]:
    if supply.cards < 2:  # noqa: PLR2004
        return
    note_names = ["slots", "cooling", "lanes"] if build.desktop.gpu_power.watts >= _HOT_WATTS else ["cooling", "lanes"]
    if supply.cards >= 4 and build.spec.name == "RTX3090":  # noqa: PLR2004  (of what was tried)
        note_names.append("quad")
    yield from ((workload_data.notes[name].text, (workload_data.notes[name].source,)) for name in note_names)
