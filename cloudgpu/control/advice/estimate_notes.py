"""The assumptions of an estimate as sentences: hours, month, disks, addresses, work, and what is not counted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction

from cloudgpu.config.settings import Settings
from cloudgpu.control.advice.estimate_inputs import AZURE_SKUS, PastMachine, disk_kind_of
from cloudgpu.control.advice.estimate_request import Address, EstimateQuery, Flops
from cloudgpu.core.advice.desktop import COMMITMENT_DISCOUNT_SOURCE, Term, percent_off
from cloudgpu.core.advice.estimate import MONTH_US, WEEK, ComputePrecision, Estimate, average_use
from cloudgpu.core.model.offers import Market
from cloudgpu.core.values.money import HOUR_MICROS
from cloudgpu.providers.attached_costs import address_kind


def assumptions(
    request: EstimateQuery,
    disk_types: dict[str, str],
    estimates: Sequence[Estimate],
    past: PastMachine | None,
    settings: Settings,
) -> Iterator[str]:
    """Yield the assumptions of the figures, each as one or two sentences."""
    yield _time_sentence(request)
    if request.filters.gpu_count is not None:
        yield from _share_sentences({estimate.machines.offer.type.gpu.share for estimate in estimates})
    if request.flops:
        yield _flops_sentence(request.flops, request.machine_count)
    if request.total_hours:
        yield f"{float(request.total_hours):,g} hours on every GPU: a faster one does more in them."
    if past:
        yield _past_machine_sentence(past, request)
    if estimates:
        yield _disk_sentence(request, disk_types, estimates)
        yield _address_sentence(request, estimates)
    if request.committed:
        yield _commitment_sentence(request, estimates)
    yield _not_counted_sentence(request, settings)


def _share_sentences(shares: Collection[float]) -> Iterator[str]:
    """Yield a sentence that shares of a GPU are no whole GPUs, if there are such offers."""
    names = ", ".join(str(Fraction(share).limit_denominator(8)) for share in sorted(shares) if share < 1)
    if names:
        yield f"{names} of a GPU is a share of one" + (", and is listed after the whole ones." if 1 in shares else ".")


def _time_sentence(request: EstimateQuery) -> str:
    """Return when the machines run, and how long a month is."""
    hours = request.hours
    machines_run = "The machine runs" if request.machine_count == 1 else f"{request.machine_count} machines run"
    if hours.share == 1:
        times = "all the time"
    else:
        times = f"{float(hours.hours_a_day):g} hours a day on {float(hours.days):g} days a week"
    billed = "started seconds, minutes and hours are billed by the rules of each cloud"
    if request.is_one_job:
        return f"{machines_run} {times} until the work is done; {billed}."
    uptime_spans = average_use(hours, MONTH_US).uptime_spans
    month = sum(float(count * span_us) for span_us, count in uptime_spans) / HOUR_MICROS
    day_text = "" if hours.days == WEEK else " A day is an average one: a seventh of a week."
    lengths = "A month is 365/12 days (730 hours), a year 365 days."
    return f"{lengths} {machines_run} {times}: {month:.5g} hours a month; {billed}.{day_text}"


def _flops_sentence(flops: Flops, machine_count: int) -> str:
    best, expected, worst = flops.efficiency
    matrices_text = "" if flops.precision is ComputePrecision.FP32 else ", of dense matrices"
    reached = f"{float(expected):g} of it is reached"
    if best != worst:
        reached += f" ({float(worst):g} to {float(best):g}: from the dear to the cheap end of the range)"
    elif not 0.2 <= expected <= 0.5:  # noqa: PLR2004  (what real training reaches)
        reached += ", though real training mostly reaches 0.2 to 0.5"
    several = "several GPUs count as so many times one" + (", and so do machines" if machine_count > 1 else "")
    return (
        f"{float(flops.operations):g} operations by each GPU's peak in {flops.precision}{matrices_text}: {reached}; "
        f"{several}, which no real training reaches."
    )


def _past_machine_sentence(past: PastMachine, request: EstimateQuery) -> str:
    in_use = f"{float(past.gpu_hours):.2f} hours with its GPU at work, {float(past.used_hours):.2f} in other use"
    other_hours_text = f"{float(past.idle_hours):.2f} idle, {float(past.unknown_hours):.2f} not known"
    counted = "the first two count; at least the first, at most all but the idle ones"
    if not past.gpu_hours + past.used_hours:
        counted = "as nothing is known of its use, every one of these hours counts"
    elif not past.gpu_hours:
        counted = "no GPU was read, so all of its use counts; at most all but the idle ones"
    gpus = f"{float(past.gpus):g} {past.gpu.name}"
    memory_note = " Fewer GPUs hold it only if each held all of it, and nothing here says so." if past.gpus > 1 else ""
    return (
        f"The work is that of {past.name} ({gpus}): {in_use}, {other_hours_text}; {counted}. Other GPUs take "
        f"longer or shorter by their speed in {request.work}; several count as so many times one, which no real "
        f"work reaches.{memory_note}"
    )


def _disk_sentence(request: EstimateQuery, disk_types: dict[str, str], estimates: Sequence[Estimate]) -> str:
    if not request.disk_gb:
        return "No disk is counted, though no machine is without one."
    kinds: dict[str, None] = {}
    unsupported: dict[str, None] = {}
    uncounted: dict[str, None] = {}
    for estimate in estimates:
        machine_type = estimate.machines.offer.type
        kind = disk_kind_of(estimate.machines.offer, disk_types)
        billed = next(  # `stored_as`: the kind under which the price list has a disk or an address
            (f" (billed as {cost.rate.stored_as})" for cost in estimate.machines.attached if cost.part == "disk"), ""
        )
        requested_kind = disk_types.get(machine_type.provider)
        if requested_kind and requested_kind != kind:
            unsupported[f"{machine_type.name} takes no {requested_kind}"] = None
        if not kind:
            uncounted[machine_type.provider] = None
            continue
        kinds[f"{kind}{billed if kind in AZURE_SKUS else ''} at {machine_type.provider}"] = None
    no_disk = f"No disk is counted at {', '.join(uncounted)}." if uncounted else ""
    if not kinds:
        return no_disk
    kept_text = "to the end of the work" if request.is_one_job else "all month"
    off_text = "" if request.hours.share == 1 else ", also while the machine is off"
    unsupported_text = f" ({', '.join(unsupported)})" if unsupported else ""
    possessive = "each machine's" if request.machine_count > 1 else "its"
    return (
        f"{request.disk_gb:,} GB is {possessive} disk, kept {kept_text}{off_text}: {', '.join(kinds)}{unsupported_text}"
        f". Provisioned IOPS and throughput are not in it.{' ' * bool(no_disk)}{no_disk}"
    )


def _address_sentence(request: EstimateQuery, estimates: Sequence[Estimate]) -> str:
    if request.address is Address.NONE:
        return "No public address is counted."
    if not any(
        address_kind(estimate.machines.offer.type.provider, estimate.machines.offer.listed.market)
        for estimate in estimates
    ):
        return "Public addresses cost nothing there."
    has_azure = any(estimate.machines.offer.type.provider == "azure" for estimate in estimates)
    if request.address is Address.STATIC:
        has_google = any(estimate.machines.offer.type.provider == "gcp" for estimate in estimates)
        unused_text = "; Google's costs more while no machine uses it" * has_google
        return f"A static public address is paid as long as the disk{unused_text}."
    static_text = "; at Azure, where every standard address is static, as long as the disk" * has_azure
    return f"A public address is paid while the machine runs{static_text}."


def _commitment_sentence(request: EstimateQuery, estimates: Sequence[Estimate]) -> str:
    committed = request.committed
    if committed is None:
        return ""
    paid_text = "A commitment is paid for every hour of its term, used or not"
    priced = [estimate for estimate in estimates if estimate.machines.committed]
    discount_percent = percent_off(committed, priced[0].machines.offer) if priced else None
    break_even_text = (
        ""
        if discount_percent is None
        else f"; it pays where more than {float(100 - discount_percent):g}% of all hours are used"
    )
    if committed.term is None:
        return f"{paid_text}: {committed.text} less than on demand, as you say{break_even_text}."
    term_text = {Term.ONE_YEAR: "one year", Term.THREE_YEARS: "three years"}[committed.term]
    if not priced:
        return (
            f"No price for {term_text} is known of any of these, and none is guessed: these are the prices on demand. "
            "Query the cloud, and say how many percent less it is: --committed 37%"
        )
    unpriced_text = (
        ""
        if len(priced) == len(estimates)
        else (
            "; of the others none is known, and none is guessed: those are at their price on demand (--committed 37% "
            "says what you were quoted)"
        )
    )
    source_text = f"{priced[0].machines.offer.type.name} by {COMMITMENT_DISCOUNT_SOURCE}"
    return f"{paid_text}; {term_text} of {source_text}{break_even_text}{unpriced_text}."


def _not_counted_sentence(request: EstimateQuery, settings: Settings) -> str:
    missing = ["traffic", "snapshots and images", "free tiers", "credits"]
    if settings.discounts:
        missing.append("what [[discounts]] of config.toml takes off")
    if request.filters.market is Market.SPOT:
        missing.append("work that is lost when a spot machine is taken away")
    if request.is_one_job:
        missing.append("the time to start and to load data")
    return f"Not counted: {', '.join(missing[:-1])} and {missing[-1]}."
