"""What an estimate rests on, in sentences: hours, month, disks, addresses, work, and what is not counted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction

from cloudgpu.config.settings import Settings
from cloudgpu.control.advice.estimate_inputs import AZURE, PastMachine, disk_at
from cloudgpu.control.advice.estimate_request import Address, EstimateQuery, Flops
from cloudgpu.core.advice.desktop import SOURCE, Term, percent_off
from cloudgpu.core.advice.estimate import MONTH, WEEK, Estimate, Precision, average_use
from cloudgpu.core.model.offers import Market
from cloudgpu.core.values.money import HOUR
from cloudgpu.providers.attached_costs import address_kind


def assumptions(
    request: EstimateQuery,
    wished: dict[str, str],
    found: Sequence[Estimate],
    past: PastMachine | None,
    settings: Settings,
) -> Iterator[str]:
    """Yield what the figures rest on, one sentence or two each."""
    yield _time(request)
    if request.filters.gpu_count is not None:
        yield from _shares({one.buy.offer.type.gpu.share for one in found})
    if request.flops:
        yield _of_flops(request.flops, request.number)
    if past:
        yield _of_past(past, request)
    if found:
        yield _disk(request, wished, found)
        yield _address(request, found)
    if request.committed:
        yield _commitment(request, found)
    yield _not_counted(request, settings)


def _shares(shares: Collection[float]) -> Iterator[str]:
    """Say that a share of a GPU is none, where GPUs were counted."""
    names = ", ".join(str(Fraction(share).limit_denominator(8)) for share in sorted(shares) if share < 1)
    if names:
        yield f"{names} of a GPU is a share of one" + (", and is listed after the whole ones." if 1 in shares else ".")


def _time(request: EstimateQuery) -> str:
    """Say when the machines run, and how long a month is."""
    hours = request.hours
    many = "The machine runs" if request.number == 1 else f"{request.number} machines run"
    if hours.share == 1:
        often = "all the time"
    else:
        often = f"{float(hours.a_day):g} hours a day on {float(hours.days):g} days a week"
    billed = "started seconds, minutes and hours are billed by the rules of each cloud"
    if request.is_finite:
        return f"{many} {often} until the work is done; {billed}."
    span = average_use(hours, MONTH)
    month = sum(float(often * run) for run, often in span.runs) / HOUR
    day = "" if hours.days == WEEK else " A day is an average one: a seventh of a week."
    lengths = "A month is 365/12 days (730 hours), a year 365 days."
    return f"{lengths} {many} {often}: {month:.5g} hours a month; {billed}.{day}"


def _of_flops(flops: Flops, number: int) -> str:
    best, expected, worst = flops.efficiency
    kind = "" if flops.precision is Precision.FP32 else ", of dense matrices"
    share = f"{float(expected):g} of it is reached"
    if best != worst:
        share += f" ({float(worst):g} to {float(best):g}: from the dear to the cheap end of the range)"
    elif not 0.2 <= expected <= 0.5:  # noqa: PLR2004  (what real training reaches)
        share += ", though real training mostly reaches 0.2 to 0.5"
    several = "several GPUs count as so many times one" + (", and so do machines" if number > 1 else "")
    return (
        f"{float(flops.number):g} operations by each GPU's peak in {flops.precision}{kind}: {share}; {several}, which "
        "no real training reaches."
    )


def _of_past(past: PastMachine, request: EstimateQuery) -> str:
    known = f"{float(past.gpu_hours):.2f} hours with its GPU at work, {float(past.used_hours):.2f} in other use"
    rest = f"{float(past.idle_hours):.2f} idle, {float(past.unknown_hours):.2f} not known"
    counted = "the first two count; at least the first, at most all but the idle ones"
    if not past.gpu_hours + past.used_hours:
        counted = "as nothing is known of its use, every one of these hours counts"
    elif not past.gpu_hours:
        counted = "no GPU was read, so all of its use counts; at most all but the idle ones"
    many = f"{float(past.gpus):g} {past.gpu.name}"
    fewer = " Fewer GPUs hold it only if each held all of it, and nothing here says so." if past.gpus > 1 else ""
    return (
        f"The work is that of {past.name} ({many}): {known}, {rest}; {counted}. Other GPUs take longer or shorter by "
        f"their speed in {request.work}; several count as so many times one, which no real work reaches.{fewer}"
    )


def _disk(request: EstimateQuery, wished: dict[str, str], found: Sequence[Estimate]) -> str:
    if not request.disk_gb:
        return "No disk is counted, though no machine is without one."
    kinds: dict[str, None] = {}
    others: dict[str, None] = {}
    uncounted: dict[str, None] = {}
    for one in found:
        shape = one.buy.offer.type
        kind = disk_at(one.buy.offer, wished)
        billed = next((f" (billed as {it.rate.stored_as})" for it in one.buy.attached if it.part == "disk"), "")
        wanted = wished.get(shape.provider)
        if wanted and wanted != kind:
            others[f"{shape.name} takes no {wanted}"] = None
        if not kind:
            uncounted[shape.provider] = None
            continue
        kinds[f"{kind}{billed if kind in AZURE else ''} at {shape.provider}"] = None
    none = f"No disk is counted at {', '.join(uncounted)}." if uncounted else ""
    if not kinds:
        return none
    long = "to the end of the work" if request.is_finite else "all month"
    off = "" if request.hours.share == 1 else ", also while the machine is off"
    message = f" ({', '.join(others)})" if others else ""
    many = "each machine's" if request.number > 1 else "its"
    return (
        f"{request.disk_gb:,} GB is {many} disk, kept {long}{off}: {', '.join(kinds)}{message}. Provisioned IOPS and "
        f"throughput are not in it.{' ' * bool(none)}{none}"
    )


def _address(request: EstimateQuery, found: Sequence[Estimate]) -> str:
    if request.address is Address.NONE:
        return "No public address is counted."
    if not any(address_kind(one.buy.offer.type.provider, one.buy.offer.listed.market) for one in found):
        return "Public addresses cost nothing there."
    azure = any(one.buy.offer.type.provider == "azure" for one in found)
    if request.address is Address.STATIC:
        google = any(one.buy.offer.type.provider == "gcp" for one in found)
        idle = "; Google's costs more while no machine uses it" * google
        return f"A static public address is paid as long as the disk{idle}."
    static = "; at Azure, where every standard address is static, as long as the disk" * azure
    return f"A public address is paid while the machine runs{static}."


def _commitment(request: EstimateQuery, found: Sequence[Estimate]) -> str:
    it = request.committed
    if it is None:
        return ""
    every = "A commitment is paid for every hour of its term, used or not"
    known = [one for one in found if one.buy.committed]
    off = percent_off(it, known[0].buy.offer) if known else None
    pays = "" if off is None else f"; it pays where more than {float(100 - off):g}% of all hours are used"
    if it.term is None:
        return f"{every}: {it.text} less than on demand, as you say{pays}."
    what = {Term.ONE_YEAR: "one year", Term.THREE_YEARS: "three years"}[it.term]
    if not known:
        return (
            f"No price for {what} is known of any of these, and none is guessed: these are the prices on demand. Query "
            "the cloud, and say how many percent less it is: --committed 37%"
        )
    rest = (
        ""
        if len(known) == len(found)
        else (
            "; of the others none is known, and none is guessed: those are at their price on demand (--committed 37% "
            "says what you were quoted)"
        )
    )
    return f"{every}; {what} of {known[0].buy.offer.type.name} by {SOURCE}{pays}{rest}."


def _not_counted(request: EstimateQuery, settings: Settings) -> str:
    missing = ["traffic", "snapshots and images", "free tiers", "credits"]
    if settings.discounts:
        missing.append("what [[discounts]] of config.toml takes off")
    if request.filters.market is Market.SPOT:
        missing.append("work that is lost when a spot machine is taken away")
    if request.flops or request.like:
        missing.append("the time to start and to load data")
    return f"Not counted: {', '.join(missing[:-1])} and {missing[-1]}."
