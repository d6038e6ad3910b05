"""A GPU that is in the price list and launched nowhere any more: said so, with the nearest that can be launched."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from cloudgpu import catalog
from cloudgpu.core.catalog.catalog import CatalogOffer, GpuSpec, InstanceType, by_price
from cloudgpu.core.catalog.gpus import nearest
from cloudgpu.core.catalog.matching import same_gpu
from cloudgpu.core.model.offers import Market, Want
from cloudgpu.errors import NoCapacity
from cloudgpu.providers.base import Provider


def retired(provider: Provider, want: Want) -> NoCapacity | None:
    """Return that what is listed is launched nowhere any more, with what is nearest; None for what is not listed.

    Asks the provider once what it launches there.
    """
    names = {one.gpu.name for one in _types(provider, want)}
    lost = [spec for spec in catalog.gpus() if spec.name in names]
    if not lost:
        return None
    listed = _listed(provider, want)
    stands = "is in the catalogue"
    if listed:
        price, places = listed[0].listed.price, {offer.listed.region for offer in listed}
        where = f"{len(places)} region" + ("s" if len(places) > 1 else "")
        stands = f"is listed at {price.per_hour.text(4)} an hour in {where} (as of {price.as_of:%Y-%m-%d})"
    return NoCapacity(
        f"{what(want)} {stands}, but {provider.kind} launches it in no region of account {provider.account} any more.",
        field="--instance-type" if want.instance_type else "--gpu",
        value=want.instance_type or counted(want),
        next=_way_out(provider, want, lost),
    )


def _types(provider: Provider, want: Want) -> list[InstanceType]:
    """Return the types of the catalogue that were wanted; none for a wish without a GPU."""
    types = catalog.types(provider.kind)
    if want.instance_type is not None:
        return [one for one in types if one.name == want.instance_type]
    if want.gpu is None:
        return []
    fitting = (one for one in types if same_gpu(one.gpu.name, want.gpu) and one.gpu.count == want.gpu_count)
    return [one for one in fitting if one.gpu.share == 1]


def _listed(provider: Provider, want: Want) -> list[CatalogOffer]:
    """Return what has a list price, the cheapest first: on the wanted market, else on demand."""
    names = {one.name for one in _types(provider, want)}
    for market in (want.market, Market.ON_DEMAND):
        offers = catalog.offers(provider.kind, None, market, legacy=True)
        found = by_price(offer for offer in offers if offer.type.name in names)
        if found:
            return found
    return []


def _way_out(provider: Provider, want: Want, lost: Sequence[GpuSpec]) -> str:
    found = _nearest(provider, want, lost)
    if found is None:
        return f"See what it sells: cloudgpu gpus --provider {provider.kind}"
    gpu, price = found.type.gpu, found.listed.price
    return (
        f"Nearest by memory and speed: {gpu.count}x {gpu.name} ({gpu.memory_gib:g} GiB), listed at "
        f"{price.per_hour.text(4)} an hour: {_command(provider, want, found)}"
    )


def _nearest(provider: Provider, want: Want, lost: Sequence[GpuSpec]) -> CatalogOffer | None:
    """Return the nearest among what the provider says it launches there now, with as many GPUs, on the same CPUs."""
    anything = Want(region=want.region, zone=want.zone, market=want.market)
    launched = {(item.instance_type, item.region) for item in provider.available(anything).items}
    shapes = {(one.gpu.count, one.gpu.share, one.arch) for one in _types(provider, want)}
    offers = (
        offer
        for offer in catalog.offers(provider.kind, None, want.market)
        if (offer.type.name, offer.listed.region) in launched
        and (offer.type.gpu.count, offer.type.gpu.share, offer.type.arch) in shapes
    )
    return nearest(lost, offers, lambda offer: catalog.named_gpu(offer.type.gpu.name))


def _command(provider: Provider, want: Want, found: CatalogOffer) -> str:
    gpu = found.type.gpu
    words = ["cloudgpu", "up", "--provider", provider.kind]
    words += ["--account", provider.account] if provider.account != provider.kind else []
    words += ["--gpu", gpu.name.lower() + (f":{gpu.count}" if gpu.count > 1 else "")]
    words += ["--zone", want.zone] if want.zone else ["--region", want.region] if want.region else []
    words += ["--spot"] if want.market is Market.SPOT else []
    return shlex.join(words)


def counted(want: Want) -> str:
    """Return the GPU that was asked for, with its number, as it is typed."""
    return f"{want.gpu}:{want.gpu_count}" if want.gpu_count > 1 else str(want.gpu)


def what(want: Want) -> str:
    """Return what was asked for, as it stands in a sentence."""
    if want.instance_type:
        return want.instance_type
    return f"{want.gpu_count}x {want.gpu}" if want.gpu else "any machine with a GPU"
