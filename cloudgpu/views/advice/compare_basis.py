"""The assumptions of a comparison as sentences, and its desktop as plain values.

`-o json` prints those values, and the library returns them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu.core.advice.compare import Case, gpu_seconds_by_day
from cloudgpu.core.advice.desktop import YEAR, Depreciation
from cloudgpu.core.catalog.gpus import RatioBasis
from cloudgpu.core.values.money import usd
from cloudgpu.core.values.naming import first_few
from cloudgpu.core.values.times import DAY
from cloudgpu.views.advice.compare_sentences import count_text, hours_text, pace_name

if TYPE_CHECKING:
    from cloudgpu.core.advice.compare import RentedMachine
    from cloudgpu.core.advice.desktop import Desktop
    from cloudgpu.views.advice.compare_sentences import AmountFormat, CompareFacts
    from cloudgpu.views.documents.money.rent_or_buy import DesktopProfile

_DEPRECIATION_TEXTS = {
    Depreciation.NONE: "nothing",
    Depreciation.STRAIGHT: "by a straight line",
    Depreciation.DECLINING: "declining",
    Depreciation.MARKET: "as used ones sell",
}


def assumptions(facts: CompareFacts, amounts: AmountFormat) -> list[str]:
    """Return the assumptions of the comparison and what it leaves out, the most important first."""
    return list(filter(None, _assumptions(facts, amounts)))


def cautions(facts: CompareFacts) -> list[str]:
    """Return the assumptions that may make the sums wrong: a clock that is behind, and what has no price."""
    return [text for text in (_clock_sentence(facts), _unpriced_sentence(facts)) if text]


def _assumptions(facts: CompareFacts, amounts: AmountFormat) -> Iterator[str]:
    yield _clock_sentence(facts)
    yield _unpriced_sentence(facts)
    yield _local_sentence(facts)
    if facts.history is not None:
        yield from _work_sentences(facts)
        yield from _speed_sentences(facts)
        yield _pace_sentence(facts)
        yield _resale_sentence(facts, amounts)
    yield from _own_machine_sentences(facts)


def _clock_sentence(facts: CompareFacts) -> str:
    if facts.ledger_ahead is None:
        return ""
    return (
        f"This computer's clock says {facts.now:%Y-%m-%d %H:%M} UTC, and the ledger's last line is of "
        f"{facts.ledger_ahead:%Y-%m-%d %H:%M} UTC: one of them is wrong, and what ran after the former is not in it."
    )


def _unpriced_sentence(facts: CompareFacts) -> str:
    return f"Without a price, and in no sum: {first_few(facts.unpriced)}." if facts.unpriced else ""


def _local_sentence(facts: CompareFacts) -> str:
    if facts.uses_local_as_rented:
        return "Only local machines have run: they are counted as if they were a cloud's."
    return (
        f"Local machines are on this computer, and left out: {first_few(facts.local_names)}."
        if facts.local_names
        else ""
    )


def _work_sentences(facts: CompareFacts) -> Iterator[str]:
    machines = (
        [] if facts.history is None else [machine for machine in facts.history.machines if sum(machine.used_seconds)]
    )
    yield "Work is time in which a GPU is busy (3% or more); the desktop waits while machines are used without that."
    unmeasured = [
        machine.name for machine in machines if machine.gpus and not machine.is_measured and machine.used_seconds.used
    ]
    if unmeasured:
        yield f"No GPU was read on {first_few(unmeasured)}: all use of it counts as work."
    unknown = sum(machine.used_seconds.unknown for machine in machines if machine.gpus)
    if unknown >= 1:
        yield (
            f"Of {hours_text(unknown)} nobody knows what they were used for: expected is the part that was work in "
            "what is known of the same machine (all, where nothing is); for the cloud all, for the desktop none."
        )
    without_gpus = [machine.name for machine in machines if not machine.gpus]
    if without_gpus:
        yield f"Without GPUs, so that they take none of the desktop's: {first_few(without_gpus)}."
    if facts.unknown_gpus:
        yield f"Which GPUs these have is not known, and they are counted as none: {first_few(facts.unknown_gpus)}."
    if any(machine.gpus > 1 and machine.used_seconds.gpu for machine in machines):
        yield "A machine with several GPUs counts with all of them while one works."
    busiest = facts.expected.busiest  # a day, and the work on it
    if busiest is not None and busiest[1] > DAY * facts.expected.owned.number:
        desktops_needed = -(-busiest[1] // DAY)
        yield (
            f"On the busiest day, {busiest[0]}, the work takes {count_text(desktops_needed)} desktops; "
            f"{'one does' if facts.expected.owned.number == 1 else 'fewer do'} it later, with a queue."
        )


def _speed_sentences(facts: CompareFacts) -> Iterator[str]:
    machines = (
        []
        if facts.history is None
        else [machine for machine in facts.history.machines if machine.gpus and sum(machine.used_seconds)]
    )
    unknown = sorted(
        {
            machine.gpu
            for machine in machines
            if machine.speed.basis is RatioBasis.SAME and not _has_desktop_gpu(machine, facts)
        }
    )
    if unknown:
        yield f"Their speed compared with the desktop's GPU is not known, and counts as the same: {first_few(unknown)}."
    speed_bases = sorted(
        {
            f"{machine.gpu} by {machine.speed.basis}"
            for machine in machines
            if machine.speed.basis is not RatioBasis.SAME
        }
    )
    if speed_bases:
        yield f"Hours are scaled by speed at {facts.workload}: {first_few(speed_bases)}."
    memory = facts.desktop_memory
    too_large = [] if memory is None else [machine for machine in machines if (machine.memory_gib or 0) > memory]
    if too_large:
        hours = sum(sum(gpu_seconds_by_day(machine, Case.EXPECTED).values()) for machine in too_large)
        gpus = sorted({(machine.gpu, machine.memory_gib or 0) for machine in too_large})
        yield (
            f"What needs more than {memory:g} GiB does not fit the desktop's GPU: {hours_text(hours)} of work were on "
            f"{first_few([f'{gpu} ({size:g} GiB)' for gpu, size in gpus])}."
        )


def _has_desktop_gpu(machine: RentedMachine, facts: CompareFacts) -> bool:
    return machine.gpu.replace(" ", "").lower() == facts.desktop.gpu.replace(" ", "").lower()


def _pace_sentence(facts: CompareFacts) -> str:
    if facts.has_no_price or facts.expected.pace is None or facts.expected.cloud_is_costlier or facts.history is None:
        return ""
    weeks = (
        "; for the cloud and for the desktop at the cheapest and the most expensive week in them"
        if facts.history.elapsed > 8 * DAY
        else ""
    )
    return f"Projected at {pace_name(facts)}{weeks}. With more or less work later, the break-even is at another time."


def _resale_sentence(facts: CompareFacts, amounts: AmountFormat) -> str:
    desktop = facts.desktop
    lifetime = f"{desktop.life / YEAR:g} years"
    if desktop.depreciation is Depreciation.NONE:
        subject = "It" if facts.expected.owned.number == 1 else "They"
        method = _DEPRECIATION_TEXTS[facts.resale_depreciation]
        resale = (
            f" {subject} could still be sold for about {amounts(facts.resale_value)} now ({method} over {lifetime})."
        )
        return (
            f"The desktop is paid in full on the first day, and bought again after {lifetime}."
            f"{resale if facts.resale_value else ''}"
        )
    method, value = _DEPRECIATION_TEXTS[desktop.depreciation], amounts(facts.resale_value)
    return f"What the desktop is still worth is taken off ({method} over {lifetime}): {value} now."


def _own_machine_sentences(facts: CompareFacts) -> Iterator[str]:
    if not facts.own_machines:
        return
    yield (
        "Your own machines are not in the cloud's sum. Their electricity is what cost says of them: their price, "
        "for as long as they ran."
    )
    assumed_names = [machine.name for machine in facts.own_machines if machine.is_assumed]
    if assumed_names:
        yield f"Watts or tariff are not in the settings, and usual ones are assumed: {first_few(assumed_names)}."
    several = [machine for machine in facts.own_machines if machine.gpus > 1]
    counted = [machine.name for machine in several if machine.time_with_gpu_count]
    if counted:
        yield f"Of several GPUs those count that were at 3% or more, by whomever: {first_few(counted)}."
    uncounted = [
        machine.name
        for machine in several
        if machine.time_without_gpu_count.total_seconds() >= 1 or not machine.time_with_gpu_count
    ]
    if uncounted:
        yield f"Work counts on all GPUs of a machine while how many worked is not measured: {first_few(uncounted)}."
    unknown = sum(machine.unknown.total_seconds() for machine in facts.own_machines)
    if unknown >= 1:
        yield f"Of {hours_text(unknown)} of them nobody knows whether they were work, and they are counted as none."
    unread = [machine.name for machine in facts.own_machines if machine.energy is None]
    if unread:
        yield f"The power of their GPUs was not measured: {first_few(unread)}."


def desktop_document(desktop: Desktop, changed: Sequence[str] = ()) -> DesktopProfile:
    """Return a desktop's figures with their source and date; `changed` are the options that replaced some of them."""
    quoted = desktop.purchase_in_currency
    return {
        "name": desktop.name,
        "gpu": desktop.gpu,
        "gpus": desktop.gpus,
        "boxes": desktop.computers,
        "purchase_usd": usd(desktop.purchase),
        "quoted": None if quoted is None else {"amount": f"{quoted.value:f}", **quoted.currency.to_json()},
        "life_years": rounded_number(Fraction(desktop.life / YEAR)),
        "gpu_watts": rounded_number(desktop.gpu_power.watts),
        "system_watts": rounded_number(desktop.rest_power.watts),
        "idle_watts": rounded_number(desktop.idle_power.watts),
        "usd_per_kwh": usd(desktop.tariff.per_kwh),
        "pue": rounded_number(desktop.pue),
        "maintenance_usd_per_year": usd(desktop.maintenance),
        "resale_usd": usd(desktop.resale),
        "depreciation": str(desktop.depreciation),
        "yearly_loss_percent": rounded_number(desktop.yearly_loss * 100),
        "source": desktop.source,
        "as_of": desktop.as_of.isoformat(),
        "changed": list(changed),
    }


def rounded_number(value: Fraction, places: int = 6) -> float | int:
    """Return a number for JSON, rounded to `places` digits after the point; an int if it is whole."""
    rounded = round(float(value), places)
    return int(rounded) if rounded == int(rounded) else rounded
