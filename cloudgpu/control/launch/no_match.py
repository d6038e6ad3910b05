"""Explains why no offer fits a request; for a listed GPU that cannot be launched now, with the nearest one sold.

`needs` are the requirements of the request. Exit code 2 is for a request that cannot be met however often it is
repeated: a misspelt name, options that contradict each other, a market on which it is not sold. Exit code 4 is for one
that may be met later, elsewhere or for more money.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace

from cloudgpu import catalog
from cloudgpu.catalog.rules import PARTLY_LISTED_PROVIDERS, PROVIDERS, PROVIDERS_LISTED_BY_REGION
from cloudgpu.core.catalog.catalog import CatalogOffer, GpuSpec, InstanceType, by_price, matching_gpus
from cloudgpu.core.catalog.gpus import nearest_offer
from cloudgpu.core.catalog.matching import fits
from cloudgpu.core.model.machine import ON_PREMISES_PROVIDERS
from cloudgpu.core.model.offers import Accelerator, MachineConfiguration, Market, Offer, Requirements, same_gpu
from cloudgpu.core.values.naming import closest_match, did_you_mean, first_few
from cloudgpu.errors import CloudgpuError, InvalidRequest, NoCapacity
from cloudgpu.providers.abilities import HasPriceHistory
from cloudgpu.providers.base import Provider

MAX_NAMED = 4  # of names that a sentence lists


def explain_unavailable(provider: Provider, needs: Requirements) -> NoCapacity | None:
    """Return the error for a type that is listed but cannot be launched now, with the nearest one; None if not listed.

    A provider without regions lists only what is free now, so there the type may be free again later. Queries the
    provider once.
    """
    gpu_names = {type_.gpu.name for type_ in _matching_types(provider, needs)}
    unavailable_gpus = [spec for spec in catalog.gpus() if spec.name in gpu_names]
    if not unavailable_gpus:
        return None
    listed_offers = _list_prices(provider, needs)
    listing_text = "is in the catalogue"
    if listed_offers:
        price, regions = listed_offers[0].listed.price, {offer.listed.region for offer in listed_offers}
        regions_text = f"{len(regions)} region" + ("s" if len(regions) > 1 else "")
        listing_text = f"is listed at {price.per_hour.text(4)} an hour in {regions_text} (as of {price.as_of:%Y-%m-%d})"
    is_permanent = provider.kind in PROVIDERS_LISTED_BY_REGION
    availability_clause = (
        f"launches it in no region of account {provider.account} any more" if is_permanent else "has none free now"
    )
    return NoCapacity(
        f"{needs_text(needs)} {listing_text}, but {provider.kind} {availability_clause}.",
        field="--instance-type" if needs.instance_type else "--gpu",
        value=needs.instance_type or gpu_text(needs),
        next=f"{'' if is_permanent else 'Try again later. '}{_nearest_remedy(provider, needs, unavailable_gpus)}",
    )


def _matching_types(provider: Provider, needs: Requirements) -> list[InstanceType]:
    """Return the catalogue's types that match the request; none for a request without a GPU."""
    types = catalog.instance_types(provider.kind)
    if needs.instance_type is not None:
        return [type_ for type_ in types if type_.name == needs.instance_type]
    if needs.gpu is None:
        return []
    return [
        type_
        for type_ in types
        if same_gpu(type_.gpu.name, needs.gpu) and type_.gpu.count == needs.gpu_count and type_.gpu.share == 1
    ]


def _list_prices(provider: Provider, needs: Requirements) -> list[CatalogOffer]:
    """Return the catalogue's offers, the cheapest first: on the requested market, else on demand."""
    names = {type_.name for type_ in _matching_types(provider, needs)}
    for market in (needs.market, Market.ON_DEMAND):
        offers = catalog.offers(provider.kind, None, market, with_legacy=True)
        matching = by_price(offer for offer in offers if offer.type.name in names)
        if matching:
            return matching
    return []


def _nearest_remedy(provider: Provider, needs: Requirements, unavailable_gpus: Sequence[GpuSpec]) -> str:
    """Return the remedy that names the nearest machine that is sold, with its price and command."""
    offer = _nearest_offer(provider, needs, unavailable_gpus)
    if offer is None:
        return f"See what it sells: cloudgpu gpus --provider {provider.kind}"
    gpu, price = offer.type.gpu, offer.listed.price
    return (
        f"Nearest by memory and speed: {gpu.count}x {gpu.name} ({gpu.memory_gib:g} GiB), listed at "
        f"{price.per_hour.text(4)} an hour: {_up_command(provider, needs, offer)}"
    )


def _nearest_offer(provider: Provider, needs: Requirements, unavailable_gpus: Sequence[GpuSpec]) -> CatalogOffer | None:
    """Return the nearest of the provider's current offers there, with as many GPUs and the same CPU architecture."""
    any_machine = Requirements(region=needs.region, zone=needs.zone, market=needs.market)
    launchable = {(config.instance_type, config.region) for config in provider.available(any_machine).items}
    configurations = {(type_.gpu.count, type_.gpu.share, type_.arch) for type_ in _matching_types(provider, needs)}
    offers = (
        offer
        for offer in catalog.offers(provider.kind, None, needs.market)
        if (offer.type.name, offer.listed.region) in launchable
        and (offer.type.gpu.count, offer.type.gpu.share, offer.type.arch) in configurations
    )
    return nearest_offer(unavailable_gpus, offers, lambda offer: catalog.gpu_by_name(offer.type.gpu.name))


def _up_command(provider: Provider, needs: Requirements, offer: CatalogOffer) -> str:
    gpu = offer.type.gpu
    args = ["cloudgpu", "up", "--provider", provider.kind]
    args += ["--account", provider.account] if provider.account != provider.kind else []
    args += ["--gpu", gpu.name.lower() + (f":{gpu.count}" if gpu.count > 1 else "")]
    args += ["--zone", needs.zone] if needs.zone else ["--region", needs.region] if needs.region else []
    args += ["--spot"] if needs.market is Market.SPOT else []
    return shlex.join(args)


def gpu_text(needs: Requirements) -> str:
    """Return the GPU that was asked for, with its number, as it is typed."""
    return f"{needs.gpu}:{needs.gpu_count}" if needs.gpu_count > 1 else str(needs.gpu)


def needs_text(needs: Requirements) -> str:
    """Return the requirements as part of a sentence."""
    if needs.instance_type:
        return needs.instance_type
    return f"{needs.gpu_count}x {needs.gpu}" if needs.gpu else "any machine with a GPU"


def explain_no_match(
    provider: Provider,
    needs: Requirements,
    configurations: Sequence[MachineConfiguration],
    too_expensive: Sequence[Offer],
    *,
    has_no_price: bool,
) -> CloudgpuError:
    """Return why none of `configurations` can be launched: NoCapacity, or InvalidRequest for an invalid request.

    `configurations` are what the provider has; `too_expensive` are those that fit and have a price, but are too
    expensive; `has_no_price`: some that fit have none. Raises what the provider raises when it is queried for the
    nearest type.
    """
    if too_expensive:
        return _too_expensive_error(needs, too_expensive)
    if has_no_price:
        return _unpriced_error(provider, needs)
    if provider.kind in PROVIDERS:
        return (
            _contradiction_error(provider, needs, configurations)
            or _other_market_error(provider, needs)
            or _other_location_error(provider, needs)
            or explain_unavailable(provider, needs)
            or _no_offer_error(provider, needs, ())
        )
    available = all_available(provider, needs)
    return (
        find_misspelling(provider, needs, available)
        or _other_market_error(provider, needs)
        or _no_offer_error(provider, needs, available)
    )


def _unpriced_error(provider: Provider, needs: Requirements) -> CloudgpuError:
    """Return the error for offers that fit and have no price.

    A provider with a history of spot prices but no current one sells no spot machine there. That is an assumption about
    AWS: nobody has seen such an answer for a type that the account could launch on spot.
    """
    is_spot = needs.market is Market.SPOT
    if is_spot and not needs.or_on_demand and isinstance(provider, HasPriceHistory):
        return _wrong_market_error(
            provider, needs, Market.ON_DEMAND, f"{provider.kind} sells no {needs_text(needs)} as a spot machine"
        )
    return NoCapacity(
        f"No price is known for {needs_text(needs)}{' as a spot machine' if is_spot else ''}, "
        "and cloudgpu launches nothing without a known price.",
        field="price",
        next=f"{_price_remedy(provider)}{'; or drop --spot' if is_spot else ''}",
    )


def _other_market_error(provider: Provider, needs: Requirements) -> InvalidRequest | None:
    """Return the error for a market without the requested machine if the other market has it. Queries once."""
    if needs.or_on_demand:
        return None
    other_market = Market.ON_DEMAND if needs.market is Market.SPOT else Market.SPOT
    needs_there = replace(needs, market=other_market)
    if not any(fits(config, needs_there) for config in provider.available(needs_there).items):
        return None
    return _wrong_market_error(provider, needs, other_market)


def _wrong_market_error(
    provider: Provider, needs: Requirements, other_market: Market, reason: str = ""
) -> InvalidRequest:
    """Return the error that this is not sold on the requested market; without `reason`, that `other_market` has it."""
    location_text = needs.zone or needs.region or f"the regions of account {provider.account}"
    market_text, remedy = (
        ("on demand", "Drop --spot.") if other_market is Market.ON_DEMAND else ("as a spot machine", "Add --spot.")
    )
    on_spot = " --spot" if needs.market is Market.SPOT else ""
    return InvalidRequest(
        f"{reason or f'{provider.kind} sells {needs_text(needs)} only {market_text}'} in {location_text}.",
        field="--spot" if other_market is Market.ON_DEMAND else "--on-demand",
        value=str(needs.market),
        next=f"{remedy} Or choose another machine: cloudgpu gpus --provider {provider.kind}{on_spot}",
    )


def _price_remedy(provider: Provider) -> str:
    if provider.kind in PROVIDERS:
        return f"Ask for a newer list: cloudgpu catalog refresh; or for a GPU: cloudgpu gpus --provider {provider.kind}"
    return "Set the price in config.toml, or choose something else."


def _too_expensive_error(needs: Requirements, too_expensive: Sequence[Offer]) -> NoCapacity:
    cheapest = min(too_expensive, key=lambda offer: offer.price.per_hour)
    configuration, price, limit = cheapest.configuration, cheapest.price.per_hour, needs.max_price
    return NoCapacity(
        f"Nothing at or under {'' if limit is None else limit.text(4)} an hour fits; the cheapest offer "
        f"costs {price.text(4)}: {configuration.instance_type} in {configuration.zone}.",
        field="--max-price",
        value=None if limit is None else f"{limit.dollars:f}",
        next=f"Allow --max-price {price.dollars:f} or more.",
    )


def _no_offer_error(provider: Provider, needs: Requirements, available: Sequence[MachineConfiguration]) -> NoCapacity:
    requested = _requested_options(needs)
    if not requested:
        message, remedy = f"Account {provider.account} has nothing to offer.", "Pick another --provider."
        return NoCapacity(message, field="--provider", value=provider.kind, next=remedy)
    texts, options = [f"{option} {value}" for option, value in requested], [option for option, _ in requested]
    return NoCapacity(
        f"Account {provider.account} has nothing with {' '.join(texts)}{_other_gpus_clause(needs, available)}.",
        field=options[0],
        value=requested[0][1],
        next=f"{_other_count_remedy(needs, available)}Drop {_list_text(options, 'or')}, or pick another --provider; "
        "--provider any is the cheapest of your clouds.",
    )


def _other_count_remedy(needs: Requirements, available: Sequence[MachineConfiguration]) -> str:
    """Return the `--gpu` option with the nearest count that exists; empty for none."""
    same_gpus = (
        gpu for config in available for gpu in config.accelerators if needs.gpu and same_gpu(gpu.name, needs.gpu)
    )
    counts = sorted(
        {gpu.count for gpu in same_gpus} - {needs.gpu_count}, key=lambda count: abs(count - needs.gpu_count)
    )
    return f"Use --gpu {needs.gpu}:{counts[0]}. " if counts else ""


def _other_gpus_clause(needs: Requirements, available: Sequence[MachineConfiguration]) -> str:
    """Return a clause with the provider's GPUs, if one was requested and it has any."""
    if needs.gpu is None or not available:
        return ""
    return f"; it has {_list_text(sorted({_gpus_text(config.accelerators) for config in available}), 'and')}"


def _requested_options(needs: Requirements) -> list[tuple[str, str]]:
    """Return the options that were given, each with its value."""
    options = {
        "--gpu": needs.gpu and gpu_text(needs),
        "--instance-type": needs.instance_type,
        "--region": needs.region,
        "--zone": needs.zone,
    }
    return [(key, value) for key, value in options.items() if value]


def _contradiction_error(
    provider: Provider, needs: Requirements, configurations: Sequence[MachineConfiguration]
) -> CloudgpuError | None:
    """Return the error for a GPU that no type has, or that the requested type lacks or has in another number."""
    if needs.gpu is None:
        return None
    suggestions = matching_gpus(needs.gpu, catalog.gpus())  # raises for an unknown one, with the near one
    if not any(same_gpu(spec.name, needs.gpu) for spec in suggestions):
        names = " or ".join(spec.name.lower() for spec in suggestions)
        return InvalidRequest(
            f"The catalogue has no GPU {needs.gpu!r}; did you mean {names}?",
            field="--gpu",
            value=needs.gpu,
            next=f"Use --gpu {names}.",
        )
    if needs.instance_type is not None:
        return _wrong_type_error(provider, needs, configurations)
    return None if provider.kind in PARTLY_LISTED_PROVIDERS else _wrong_count_error(provider, needs)


def _wrong_count_error(provider: Provider, needs: Requirements) -> NoCapacity | None:
    """Return the error for a GPU that a provider lacks, or has in other numbers, where its price list is complete."""
    counts = sorted(
        {
            type_.gpu.count
            for type_ in catalog.instance_types(provider.kind)
            if same_gpu(type_.gpu.name, needs.gpu or "")
        }
    )
    if not counts:
        return _not_sold_error(provider, needs)
    if needs.gpu_count not in counts:
        return NoCapacity(
            f"{provider.kind} has no machine with {needs.gpu_count} {needs.gpu}: "
            f"it has them with {_list_text(map(str, counts), 'or')}.",
            field="--gpu",
            value=gpu_text(needs),
            next=f"For example --gpu {needs.gpu}:{min(counts, key=lambda n: (abs(n - needs.gpu_count), n))}",
        )
    return None


def _wrong_type_error(
    provider: Provider, needs: Requirements, configurations: Sequence[MachineConfiguration]
) -> InvalidRequest | None:
    """Return the error for an instance type and a GPU that contradict each other."""
    listed_gpus = [(type_.gpu,) for type_ in catalog.instance_types(provider.kind) if type_.name == needs.instance_type]
    available_gpus = [config.accelerators for config in configurations if config.instance_type == needs.instance_type]
    gpus = next(iter(listed_gpus + available_gpus), None)
    if gpus is None or any(same_gpu(gpu.name, needs.gpu or "") and gpu.count == needs.gpu_count for gpu in gpus):
        return None
    return InvalidRequest(
        f"{needs.instance_type} has {_gpus_text(gpus)}, not {needs.gpu_count}x {needs.gpu}.",
        field="--gpu",
        value=gpu_text(needs),
        next="Leave --gpu or --instance-type out.",
    )


def _gpus_text(accelerators: Sequence[Accelerator]) -> str:
    return ", ".join(f"{gpu.count}x {gpu.name}" for gpu in accelerators) or "no GPU"


def _not_sold_error(provider: Provider, needs: Requirements) -> NoCapacity:
    sellers = sorted(
        {type_.provider for type_ in catalog.instance_types() if same_gpu(type_.gpu.name, needs.gpu or "")}
    )
    clause = f"; {_list_text(sellers, 'and')} {'does' if len(sellers) == 1 else 'do'}" if sellers else ""
    return NoCapacity(
        f"{provider.kind} sells no machine with {needs.gpu}{clause}.",
        field="--gpu",
        value=gpu_text(needs),
        next=f"See what it sells: cloudgpu gpus --provider {provider.kind}",
    )


def _other_location_error(provider: Provider, needs: Requirements) -> NoCapacity | None:
    """Return the error that names other locations, if only the location is the obstacle. Queries once."""
    if needs.region is None and needs.zone is None:
        return None
    anywhere = replace(needs, region=None, zone=None)
    fitting = [config for config in provider.available(anywhere).items if fits(config, anywhere)]
    if not fitting:
        return None
    regions, zones = {config.region for config in fitting}, {config.zone for config in fitting}
    in_region = sorted(zone for zone in zones if needs.zone and zone[:-1] == needs.zone[:-1])
    option, location = ("--zone", needs.zone) if needs.zone else ("--region", needs.region)
    locations, name = (in_region, "--zone") if in_region else (sorted(regions), "--region")
    return NoCapacity(
        f"{provider.kind} does not launch {needs_text(needs)} in {location}: it does in "
        f"{_list_text(locations, 'and')}.",
        field=option,
        value=location,
        next=f"Name {name} {locations[0]}, or leave {option} out.",
    )


def _list_text(names: Iterable[str], conjunction: str) -> str:
    """Return `a, b and c`, or the first few and how many more."""
    listed = list(names)
    if len(listed) > MAX_NAMED:
        return first_few(listed, MAX_NAMED)
    return f" {conjunction} ".join(filter(None, (", ".join(listed[:-1]), listed[-1])))


def all_available(provider: Provider, needs: Requirements) -> Sequence[MachineConfiguration]:
    """Return all that a provider has on the requested market, queried once; empty where a part does not answer."""
    try:
        availability = provider.available(Requirements(market=needs.market, or_on_demand=needs.or_on_demand))
    except CloudgpuError:
        return ()
    return () if availability.unanswered else availability.items


def find_misspelling(
    provider: Provider, needs: Requirements, available: Sequence[MachineConfiguration]
) -> InvalidRequest | None:
    """Return the error for a misspelt value; None where it may exist without capacity.

    On-premises machines are never sold out, so a name that is not in `available` does not exist. A cloud may leave out
    what it has no capacity for: there a name counts as misspelt only if a similar one exists.
    """
    options = (
        ("--instance-type", "instance type", needs.instance_type, {config.instance_type for config in available}),
        ("--region", "region", needs.region, {config.region for config in available}),
        ("--zone", "zone", needs.zone, {config.zone for config in available}),
    )
    for option, subject, value, names in options:
        if value is None or value in names or not names:
            continue
        suggestion = closest_match(value, names)
        if suggestion or provider.kind in ON_PREMISES_PROVIDERS:
            return _misspelling_error(provider, option, subject, value, suggestion, sorted(names))
    return _no_gpu_error(provider, needs, available)


def _no_gpu_error(
    provider: Provider, needs: Requirements, available: Sequence[MachineConfiguration]
) -> InvalidRequest | None:
    """Return the error for a GPU that neither the provider nor the catalogue has."""
    gpu_names = {gpu.name.lower() for config in available for gpu in config.accelerators}
    if needs.gpu is None or any(same_gpu(name, needs.gpu) for name in gpu_names):
        return None
    try:
        matching_gpus(needs.gpu, catalog.gpus())
    except InvalidRequest as error:
        suggestion = closest_match(needs.gpu, gpu_names)
        return _misspelling_error(provider, "--gpu", "GPU", needs.gpu, suggestion, ()) if suggestion else error
    return None


def _misspelling_error(
    provider: Provider, option: str, subject: str, value: str, suggestion: str | None, names: Sequence[str]
) -> InvalidRequest:
    return InvalidRequest(
        f"Account {provider.account} has no {subject} {value!r}" + did_you_mean(suggestion, "."),
        field=option,
        value=value,
        next=f"Use {option} {suggestion}."
        if suggestion
        else f"It has: {', '.join(names[:MAX_NAMED])}. Or drop {option}.",
    )
