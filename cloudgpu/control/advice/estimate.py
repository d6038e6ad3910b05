"""Estimates what machines would cost on every provider, by the catalogue's prices and the billing rules.

With `--nodes`: how much faster a cluster of each type is, and the chance that a spot node is interrupted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu import catalog
from cloudgpu.catalog.read import network_of
from cloudgpu.config.desktops.workloads import shipped_workload_data
from cloudgpu.config.files.user_files import find_home
from cloudgpu.config.settings import Settings, load_settings
from cloudgpu.control.advice.estimate_inputs import (
    AttachedRates,
    PastMachine,
    attached_costs,
    discontinued_types,
    offers_of,
    past_machine,
    past_machine_document,
    precisions,
    relaxations,
    requested_disks,
    scale_hours,
    with_resolved_type,
)
from cloudgpu.control.advice.estimate_notes import assumptions
from cloudgpu.control.advice.estimate_request import EstimateOptions, EstimateQuery, Flops, NodesQuery, parse_estimate
from cloudgpu.control.catalog.market import use_refreshed_prices
from cloudgpu.control.clusters.remarks import gang_loss_of, peak_tflops_of
from cloudgpu.core.advice.desktop import percent_off
from cloudgpu.core.advice.estimate import (
    MONTH_US,
    YEAR_US,
    ComputePrecision,
    CostParts,
    Estimate,
    PricedMachines,
    WorkHours,
    average_use,
    cheapest_per_group,
    compute_hours,
    cost_parts,
    has_bf16,
    is_unverified,
    peak_tflops,
    use_of_job,
    whole_gpus_first,
)
from cloudgpu.core.advice.workloads import KAGGLE_GPU, KAGGLE_GPUS
from cloudgpu.core.billing.rules import DAY_US
from cloudgpu.core.catalog.catalog import (
    OLD_PRICE_AGE,
    CatalogOffer,
    GpuSpec,
    marketplace_notes,
    matching_gpus,
    spot_uncertainty,
)
from cloudgpu.core.catalog.gpus import speed_ratio
from cloudgpu.core.clusters.scaling import (
    GRADIENT_BYTES,
    NETWORK_EFFICIENCY,
    GangLoss,
    TypeNetwork,
    scaling_estimate,
    worth_sentence,
)
from cloudgpu.core.model.offers import Market, Trust
from cloudgpu.core.values.times import iso
from cloudgpu.views.advice.estimate import DisplayOptions, GpuSpeeds, estimates_document, obstacles_document

if TYPE_CHECKING:
    from datetime import datetime

    from cloudgpu.control.session.session import Session
    from cloudgpu.core.model.machine import Machine
    from cloudgpu.views.documents.market.estimate import (
        EstimateDocument,
        EstimateRequest,
        GangChance,
        NodesDocument,
        NodesSpeedUp,
    )


PERIODS = {"day": DAY_US, "month": MONTH_US, "year": YEAR_US}  # in microseconds


def estimate_document(session: Session, request: EstimateQuery, machines: Sequence[Machine] = ()) -> EstimateDocument:
    """Return the document of `estimate`; reads the ledger only for a past machine.

    `machines` are those of the ledger, for the chance that one of a cluster's spot nodes is interrupted.
    """
    past = None if request.like is None else past_machine(session, request.like)
    return estimate(session.settings, session.clock(), request, past, machines)


def estimate_without_ledger(
    environ: Mapping[str, str], now: datetime, options: EstimateOptions
) -> tuple[EstimateDocument, EstimateQuery]:
    """Return the document of `estimate` without a ledger, by this home's settings and prices, and the parsed request.

    Raises InvalidRequest for invalid options or settings.
    """
    use_refreshed_prices(environ)
    settings = load_settings(find_home(environ), environ)
    request = parse_estimate(settings, now, **options)
    return estimate(settings, now, request, None), request


def estimate(
    settings: Settings,
    now: datetime,
    request: EstimateQuery,
    past: PastMachine | None,
    machines: Sequence[Machine] = (),
) -> EstimateDocument:
    """Return the estimate as plain values, by the dated prices of the catalogue.

    Raises InvalidRequest for an unknown GPU, type, provider, region or kind of disk, with similar names.
    """
    request, disk_types = with_resolved_type(request), requested_disks(request.disks)
    offers, speeds = offers_of(request), GpuSpeeds()
    estimates = cheapest_per_group(
        list(_estimates(request, past, offers, disk_types, speeds, now)),
        one_row_per_type=request.one_row_per_type or bool(request.type),
    )
    if request.filters.gpu_count is not None:
        estimates = whole_gpus_first(estimates)
    with_costs = [
        replace(estimate, costs=_costs_by_period(request, estimate.machines, estimate.work_hours))
        for estimate in estimates
    ]
    gpu = request.filters.gpu
    return {
        "as_of": iso(now),
        "request": _estimate_request(request),
        "past_run": None if past is None else past_machine_document(past),
        "currency": None if request.currency is None else request.currency.to_json(),
        "estimates": estimates_document(
            with_costs, DisplayOptions(now, request.currency, _fees_factor(settings)), speeds
        ),
        "nodes": None if request.nodes is None else nodes_document(request, request.nodes, with_costs, machines),
        "left_out": [{"gpu": name, "why": why} for name, why in sorted(speeds.left_out.items())],
        "matching_gpus": [] if gpu is None else [spec.name for spec in matching_gpus(gpu, catalog.gpus())],
        "without": [] if offers else obstacles_document(relaxations(request)),
        "precisions": [] if with_costs or request.flops is None else precisions(offers),
        "marketplaces": marketplace_notes(estimate.machines.offer for estimate in with_costs),
        "withheld": discontinued_types(request, offers),
        "old_after_days": OLD_PRICE_AGE.days,
        "free_hours": _kaggle_sentence(request, with_costs),
        "assumptions": list(assumptions(request, disk_types, with_costs, past, settings)),
        "fees": settings.fees.summary,
    }


def _kaggle_sentence(request: EstimateQuery, estimates: Sequence[Estimate]) -> str | None:
    """Return that Kaggle's free hours are enough, if its GPU is among the estimates; None if they are not."""
    figures = shipped_workload_data().figures
    free_hours, session_hours = figures.kaggle_hours.value, figures.kaggle_session_hours.value
    on_t4 = [estimate for estimate in estimates if _is_kaggle_gpu(estimate)]
    if not on_t4 or request.machine_count > 1:
        return None
    needed = (
        on_t4[0].work_hours.hours if on_t4[0].work_hours is not None else request.hours.hours_a_day * request.hours.days
    )
    if needed > free_hours:
        return None
    usage = f"{float(needed):.3g} hours" + ("" if request.is_one_job else " a week")
    return (
        f"Free: Kaggle gives about {float(free_hours):g} GPU hours a week on two T4, and this is {usage} (notebooks of "
        f"at most {float(session_hours):g} hours)."
    )


def _is_kaggle_gpu(estimate: Estimate) -> bool:
    gpu = estimate.machines.offer.type.gpu
    return gpu.name == KAGGLE_GPU and gpu.share == 1 and gpu.count <= KAGGLE_GPUS and estimate.has_enough_gpu_memory


def _fees_factor(settings: Settings) -> Fraction | None:
    """Return by what taxes and support multiply a price; None if config.toml names neither."""
    fees = settings.fees
    return None if fees.tax_percent is None and fees.support_percent is None else fees.factor


def _estimates(
    request: EstimateQuery,
    past: PastMachine | None,
    offers: Iterable[CatalogOffer],
    disk_types: dict[str, str],
    speeds: GpuSpeeds,
    now: datetime,
) -> Iterator[Estimate]:
    """Yield what each offer would cost in the time by which estimates are sorted: the expected time, or a month.

    GPUs whose speed is not known are left out for a job, and named in `speeds.left_out`.
    """
    rates, sort_key = AttachedRates(), "expected" if request.is_one_job else "month"
    for offer in offers:
        work_hours = _work_hours(request, past, offer, speeds)
        if request.is_one_job and work_hours is None:
            continue
        priced = _priced_machines(request, offer, disk_types, rates)
        usage = use_of_job(request.hours, work_hours.hours) if work_hours else average_use(request.hours, MONTH_US)
        fits = past is None or (offer.type.gpu.memory_gib or 0) >= past.memory_gib
        costs = {sort_key: cost_parts(priced, usage)}
        yield Estimate(priced, costs, sort_key, work_hours, fits, spot_uncertainty(offer, now))


def _priced_machines(
    request: EstimateQuery, offer: CatalogOffer, disk_types: dict[str, str], rates: AttachedRates
) -> PricedMachines:
    list_price = offer.listed.price.per_hour
    discount_percent = percent_off(request.committed, offer) if request.committed else None
    price = list_price if discount_percent is None else list_price.scaled(1 - discount_percent / 100)
    resources = tuple(attached_costs(request, offer, disk_types, rates))
    return PricedMachines(offer, price, resources, request.machine_count, committed=discount_percent is not None)


def _costs_by_period(request: EstimateQuery, priced: PricedMachines, work: WorkHours | None) -> dict[str, CostParts]:
    """Return the costs of a day, month and year, or of a job: low, expected and high."""
    if work is None:
        return {name: cost_parts(priced, average_use(request.hours, length)) for name, length in PERIODS.items()}
    hours_by_name = {"low": work.low, "expected": work.hours, "high": work.high}
    return {name: cost_parts(priced, use_of_job(request.hours, hours)) for name, hours in hours_by_name.items()}


def _work_hours(
    request: EstimateQuery, past: PastMachine | None, offer: CatalogOffer, speeds: GpuSpeeds
) -> WorkHours | None:
    """Return how long these machines need for the job; None without a job, or if their GPU's speed is not known."""
    gpu = offer.type.gpu
    if request.total_hours is not None:
        return WorkHours(request.total_hours, request.total_hours, request.total_hours)
    if request.flops is None and past is None:
        return None
    spec = catalog.gpu_by_name(gpu.name)
    gpus = gpu.count * Fraction(gpu.share).limit_denominator(8) * request.machine_count
    if spec is None:
        speeds.left_out[gpu.name] = "no figures in the catalogue"
        return None
    return (
        _hours_of_flops(request.flops, spec, gpus, speeds)
        if request.flops
        else _hours_like_past(request, past, spec, gpus, speeds)
    )


def _hours_of_flops(flops: Flops, spec: GpuSpec, gpus: Fraction, speeds: GpuSpeeds) -> WorkHours | None:
    """Return the hours for so many operations, and record the GPU's peak in `speeds`; None if that is not known."""
    peak = peak_tflops(spec, flops.precision)
    if peak is None:
        lacks_bf16 = flops.precision is ComputePrecision.BF16 and not has_bf16(spec)
        speeds.left_out[spec.name] = "no bf16" if lacks_bf16 else f"no known peak in {flops.precision}"
        return None
    speeds.peaks[spec.name] = peak
    if is_unverified(spec, flops.precision):
        speeds.unverified.add(spec.name)
    return WorkHours(*(compute_hours(flops.operations, peak, gpus, efficiency) for efficiency in flops.efficiency))


def _hours_like_past(
    request: EstimateQuery, past: PastMachine | None, spec: GpuSpec, gpus: Fraction, speeds: GpuSpeeds
) -> WorkHours | None:
    """Return the hours for a past machine's work, and record the speed ratio in `speeds`; None if it is not known."""
    if past is None:
        return None
    ratio = speed_ratio(spec, past.gpu, request.work)
    if ratio is None:
        speeds.left_out[spec.name] = f"no figure that {past.gpu.name} has, too"
        return None
    speeds.ratios[spec.name] = ratio
    return scale_hours(past, ratio, gpus)


def _estimate_request(request: EstimateQuery) -> EstimateRequest:
    filters, flops = request.filters, request.flops
    return {
        "gpu": filters.gpu,
        "gpu_count": filters.gpu_count,
        "type": request.type,
        "number": request.machine_count,
        "market": str(filters.market),
        "provider": filters.provider,
        "region": filters.region,
        "disk_gb": request.disk_gb,
        "address": str(request.address),
        "committed": request.committed.text if request.committed else None,
        "hours_per_day": float(request.hours.hours_a_day),
        "days_per_week": float(request.hours.days),
        "hours": None if request.total_hours is None else float(request.total_hours),
        "flops": None if flops is None else float(flops.operations),
        "precision": None if flops is None else str(flops.precision),
        "efficiency": None if flops is None else [float(efficiency) for efficiency in flops.efficiency],
        "like": request.like,
        "work": str(request.work) if request.like else None,
    }


def nodes_document(
    request: EstimateQuery, query: NodesQuery, estimates: Sequence[Estimate], machines: Sequence[Machine]
) -> NodesDocument:
    """Return the speed-up and cost factor of a cluster of each type, in the order of the estimates.

    `machines` are those of the ledger, for their spot interruptions. If no provider has the GPU anywhere, the answer
    is about the user's own machines.
    """
    training = query.training
    clusters = [_cluster_of_offer(query, estimate, machines) for estimate in estimates]
    return {
        "nodes": query.nodes,
        "parameters": training.parameters,
        "trainable": training.trained_parameters,
        "tokens": training.tokens,
        "gradient_bytes": GRADIENT_BYTES,
        "efficiency": query.used_of_peak,
        "network_used": NETWORK_EFFICIENCY,
        "worth": clusters or [*_clusters_of_own_gpus(request, query)],
        "assumptions": [*_assumptions(query)],
    }


def _cluster_of_offer(query: NodesQuery, estimate: Estimate, machines: Sequence[Machine]) -> NodesSpeedUp:
    machine_type, listed = estimate.machines.offer.type, estimate.machines.offer.listed
    place = (machine_type.provider, machine_type.name, listed.region)
    on_spot = listed.market is Market.SPOT
    interruption = gang_loss_of(query.nodes, *place, machines, query.spot_loss) if on_spot else None
    return {
        **_cluster_document(
            query,
            machine_type.gpu.name,
            peak_tflops_of([machine_type.gpu]),
            network_of(machine_type.provider, machine_type.name),
            machine_type.name.removeprefix("Standard_"),
        ),
        "provider": machine_type.provider,
        "region": listed.region,
        "instance_type": machine_type.name,
        "spot_loss": None if interruption is None else _interruption_chance(interruption),
    }


def _clusters_of_own_gpus(request: EstimateQuery, query: NodesQuery) -> Iterator[NodesSpeedUp]:
    """Yield the cluster of each GPU that is requested, as the user's own machines; none if somebody rents it out."""
    gpu = request.filters.gpu
    is_rented_out = gpu and any(catalog.offers(gpu=gpu, with_legacy=True, trust=Trust.COMMUNITY))
    for spec in matching_gpus(gpu, catalog.gpus()) if gpu and not is_rented_out else ():
        yield _cluster_document(query, spec.name, spec.tensor_tflops, None, None)


def _cluster_document(
    query: NodesQuery, gpu: str, peak: float | None, type_network: TypeNetwork | None, type_name: str | None
) -> NodesSpeedUp:
    """Return the speed-up of a cluster with this GPU, of `peak` teraflops; `says` has why it is not known."""
    network = type_network if query.network_gbit is None else None
    gbit = query.network_gbit if network is None else network.gbit
    document: NodesSpeedUp = {
        "provider": None,
        "region": None,
        "instance_type": None,
        "gpu": gpu,
        "network_gbit_per_s": gbit,
        "network_up_to_gbit_per_s": None if network is None else network.burst_gbit,
        "network_fabric": None if network is None else network.fabric,
        "network_note": None if network is None else network.note or None,
        "network_source": None if network is None else f"{network.source}, {network.as_of}",
        "compute_s": None,
        "traffic_s": None,
        "speed_up": None,
        "speed_up_without_overlap": None,
        "cost_factor": None,
        "overlap_gbit_per_s": None,
        "verdict": None,
        "says": f"Not known: the catalogue has no tensor peak of a {gpu}.",
        "spot_loss": None,
    }
    if gbit is None:
        return {
            **document,
            "says": f"Not known: the network of machines with {type_name or gpu} is in no list. "
            "Give it: --network 10 (Gbit/s).",
        }
    if peak is None:
        return document
    speed = scaling_estimate(query.training, query.nodes, peak, gbit, used_of_peak=query.used_of_peak)
    return {
        **document,
        "compute_s": speed.compute_s,
        "traffic_s": speed.traffic_s,
        "speed_up": speed.speed_up,
        "speed_up_without_overlap": speed.without_overlap,
        "cost_factor": speed.cost_factor,
        "overlap_gbit_per_s": speed.gbit_to_hide_traffic,
        "verdict": str(speed.verdict),
        "says": worth_sentence(speed, f" with {type_name or gpu} and {gbit:g} Gbit/s"),
    }


def _interruption_chance(loss: GangLoss) -> GangChance:
    (one_loss_low, one_loss_high), (any_loss_low, any_loss_high) = loss.machine_chance, loss.chance
    return {
        "per": loss.per,
        "one_loss_low": one_loss_low,
        "one_loss_high": one_loss_high,
        "any_loss_low": any_loss_low,
        "any_loss_high": any_loss_high,
        "source": loss.source,
    }


def _assumptions(query: NodesQuery) -> Iterator[str]:
    training = query.training
    trained = "all" if training.trained_parameters == training.parameters else f"{training.trained_parameters:,.0f}"
    yield (
        f"A step: {training.tokens:,.0f} tokens per GPU, {training.parameters:,.0f} parameters, of which {trained} are "
        f"trained, gradients of {GRADIENT_BYTES} bytes (bf16)."
    )
    yield (
        f"Computing takes 6 x parameters x tokens operations (arXiv:2001.08361) at {query.used_of_peak:.0%} of the "
        f"GPU's dense peak. Sending is a ring all-reduce, 2(n-1)/n of the gradients (nccl-tests, PERFORMANCE.md), at "
        f"{NETWORK_EFFICIENCY:.0%} of the network. Overlap hides it behind the backward pass at most."
    )
    yield "Sent at least: FSDP and ZeRO-3 send half as much again, and GPUs without NVLink send inside a machine, too."
