"""Answers of `estimate --nodes`: whether several machines of each type are worth it, and how likely a gang is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cloudgpu import catalog
from cloudgpu.catalog.read import network_of
from cloudgpu.control.clusters.remarks import gang_loss_of, peak_of
from cloudgpu.core.catalog.catalog import meant_by
from cloudgpu.core.clusters.worth import (
    GRADIENT_BYTES,
    USED_OF_NETWORK,
    GangLoss,
    TypeNetwork,
    speed_up,
    worth_sentence,
)
from cloudgpu.core.model.offers import Market

if TYPE_CHECKING:
    from cloudgpu.control.advice.estimate_request import EstimateQuery, NodesQuery
    from cloudgpu.core.advice.estimate import Estimate
    from cloudgpu.core.model.machine import Machine
    from cloudgpu.views.documents.market.nodes import GangChance, NodesDocument, NodesWorth


def nodes_value(
    request: EstimateQuery, query: NodesQuery, found: Sequence[Estimate], machines: Sequence[Machine]
) -> NodesDocument:
    """Return what so many machines of each type are worth, in the order of the estimates.

    `machines` are those of the ledger, for what it has seen of spot. Where no provider has the GPU, the answer is about
    machines of the user's own.
    """
    training = query.training
    return {
        "nodes": query.nodes,
        "parameters": training.parameters,
        "trainable": training.trained,
        "tokens": training.tokens,
        "gradient_bytes": GRADIENT_BYTES,
        "efficiency": query.used_of_peak,
        "network_used": USED_OF_NETWORK,
        "worth": [_of_offer(query, one, machines) for one in found] or [*_of_own(request, query)],
        "assumptions": [*_assumptions(query)],
    }


def _of_offer(query: NodesQuery, estimate: Estimate, machines: Sequence[Machine]) -> NodesWorth:
    shape, listed = estimate.buy.offer.type, estimate.buy.offer.listed
    peak = peak_of([shape.gpu])
    value = _worth(
        query,
        shape.gpu.name,
        peak,
        network_of(shape.provider, shape.name),
        shape.name.removeprefix("Standard_"),
    )
    place = (shape.provider, shape.name, listed.region)
    on_spot = listed.market is Market.SPOT
    loss = gang_loss_of(query.nodes, *place, machines, query.spot_loss) if on_spot else None
    return {
        **value,
        "provider": shape.provider,
        "region": listed.region,
        "instance_type": shape.name,
        "spot_loss": None if loss is None else _chance(loss),
    }


def _of_own(request: EstimateQuery, query: NodesQuery) -> Iterator[NodesWorth]:
    """Yield the GPUs that were named, as machines of the user's own."""
    named = request.filters.gpu
    for spec in meant_by(named, catalog.gpus()) if named else ():
        yield _worth(query, spec.name, spec.tensor_tflops, None, None)


def _worth(query: NodesQuery, gpu: str, peak: float | None, listed: TypeNetwork | None, kind: str | None) -> NodesWorth:
    network = listed if query.network is None else None
    gbit = query.network if network is None else network.gbit
    value: NodesWorth = {
        "provider": None,
        "region": None,
        "instance_type": None,
        "gpu": gpu,
        "network_gbit_per_s": gbit,
        "network_up_to_gbit_per_s": None if network is None else network.up_to,
        "network_fabric": None if network is None else network.fabric,
        "network_note": None if network is None else network.note or None,
        "network_source": None if network is None else f"{network.source}, {network.as_of}",
        "compute_s": None,
        "traffic_s": None,
        "speed_up": None,
        "speed_up_without_overlap": None,
        "cost_factor": None,
        "hiding_gbit_per_s": None,
        "verdict": None,
        "says": f"Not known: the catalogue has no tensor peak of a {gpu}.",
        "spot_loss": None,
    }
    if gbit is None:
        missing = (
            f"Not known: the network of machines with {kind or gpu} is in no list. Give it: --network 10 (Gbit/s)."
        )
        return {**value, "says": missing}
    if peak is None:
        return value
    worth = speed_up(query.training, query.nodes, peak, gbit, used_of_peak=query.used_of_peak)
    return {
        **value,
        "compute_s": worth.compute_s,
        "traffic_s": worth.traffic_s,
        "speed_up": worth.speed_up,
        "speed_up_without_overlap": worth.without_overlap,
        "cost_factor": worth.cost_factor,
        "hiding_gbit_per_s": worth.hiding_gbit,
        "verdict": str(worth.verdict),
        "says": worth_sentence(worth, f" with {kind or gpu} and {gbit:g} Gbit/s"),
    }


def _chance(loss: GangLoss) -> GangChance:
    (one_least, one_most), (any_least, any_most) = loss.each, loss.chance
    return {
        "per": loss.per,
        "one_least": one_least,
        "one_most": one_most,
        "any_least": any_least,
        "any_most": any_most,
        "source": loss.source,
    }


def _assumptions(query: NodesQuery) -> Iterator[str]:
    training = query.training
    trained = "all" if training.trained == training.parameters else f"{training.trained:,.0f}"
    yield (
        f"A step: {training.tokens:,.0f} tokens per GPU, {training.parameters:,.0f} parameters, of which {trained} are "
        f"trained, gradients of {GRADIENT_BYTES} bytes (bf16)."
    )
    yield (
        f"Computing takes 6 x parameters x tokens operations (arXiv:2001.08361) at {query.used_of_peak:.0%} of the "
        f"GPU's dense peak. Sending is a ring all-reduce, 2(n-1)/n of the gradients (nccl-tests, PERFORMANCE.md), at "
        f"{USED_OF_NETWORK:.0%} of the network. Overlap hides it behind the backward pass at most."
    )
    yield "Sent at least: FSDP and ZeRO-3 send half as much again, and GPUs without NVLink send inside a machine, too."
