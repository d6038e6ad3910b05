"""Finds what could be launched on Azure now, and in which regions a request is to be satisfied.

These are the region that it names, or those of the account where the sizes may be sold. What could be launched are the
sizes that satisfy the request, in the regions that sell them to this subscription. A machine is offered anywhere in its
region (zone `eastus`), where Azure chooses: that has the best chance of capacity. It is offered in one zone alone
(`eastus-1`) only where `--zone` names that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from cloudgpu.catalog import instance_types, priced_regions, regions as listed_regions
from cloudgpu.core.catalog.matching import allowed_markets
from cloudgpu.core.model.account import Region
from cloudgpu.core.model.offers import Accelerator, Availability, MachineConfiguration, Market, Requirements
from cloudgpu.core.values.naming import closest_match, did_you_mean
from cloudgpu.errors import InvalidRequest, NoCapacity
from cloudgpu.providers.azure import ids
from cloudgpu.providers.azure.calls import call_or_none
from cloudgpu.providers.azure.client import MAX_PARALLEL, PROVIDER, Azure, get_values
from cloudgpu.providers.azure.ids import Sku
from cloudgpu.providers.azure.market.skus import skus
from cloudgpu.providers.shared.calls import ask_each
from cloudgpu.providers.shared.rules import (
    check_region_exists,
    excluded_place_error,
    gpus_of,
    matches_requirements,
    region_at,
    requested_region,
)

VERSION = "2022-12-01"  # of Microsoft.Resources/subscriptions
NO_ZONE = "not a zone of Azure"
ZONE_REMEDY = "Write it like eastus-1, or like eastus for anywhere in that region."


def account_regions(azure: Azure) -> tuple[str, ...]:
    """Return the regions that this account uses: those of the settings, else all that the price list has.

    No call. Any other region of the subscription is used only where `--region` names it.
    """
    configured_regions = azure.options.regions or tuple(sorted(listed_regions("azure")))
    return tuple(one for one in configured_regions if one not in azure.options.exclude_regions)


def wanted_regions(azure: Azure, requirements: Requirements, names: Sequence[str]) -> tuple[str, ...]:
    """Return the regions in which to look for the sizes `names`: where the price list has one, else all. No call.

    Raises InvalidRequest for a region that the account does not use, an unknown zone, or one of another region.
    """
    requested_region = named_region(azure, requirements)
    if requested_region is not None:
        return (requested_region,)
    regions_by_size = priced_regions("azure")
    regions_with_price = frozenset[str]().union(*(regions_by_size.get(name, ()) for name in names))
    has_unpriced_size = any(name not in regions_by_size for name in names)
    return tuple(one for one in account_regions(azure) if one in regions_with_price or has_unpriced_size)


def named_region(azure: Azure, requirements: Requirements) -> str | None:
    """Return the region of the requirements, named itself or by its zone; None for none. Raises InvalidRequest."""
    return requested_region(requirements, ids.region_of, NO_ZONE, ZONE_REMEDY, check=partial(check_region, azure))


def check_region(azure: Azure, region: str) -> None:
    """Raise InvalidRequest, which suggests a similar one, for a region that this account does not use.

    No call for a region of the settings or the price list; for any other, Azure's list of regions is read.
    """
    catalogue_regions, configured_regions = listed_regions("azure"), azure.options.regions
    if region in azure.options.exclude_regions or (
        configured_regions and region not in configured_regions and region in catalogue_regions
    ):
        raise excluded_place_error(azure.account, "--region", region)
    message = f"Azure has no region {region!r} for account {azure.account}"
    check_region_exists(
        region,
        (*configured_regions, *catalogue_regions),
        lambda: sorted(_location_names(azure) or catalogue_regions),
        message,
    )


def endpoints(azure: Azure) -> list[Region]:
    """Return the regions of the account with the host of each one's Resource Manager. One call at most.

    The regional host is one that Azure documents for callers who want their requests to stay in a region
    ("Azure Resource Manager overview": https://westus.management.azure.com).
    """
    names = azure.options.regions or _location_names(azure) or account_regions(azure)
    region_names = dict.fromkeys(name for name in names if name not in azure.options.exclude_regions)
    return [region_at(name, azure.endpoint or f"https://{name}.management.azure.com") for name in region_names]


def _location_names(azure: Azure) -> list[str]:
    """Return the names of the subscription's physical regions; none where a server in Azure's place has no list."""
    action, path = "Microsoft.Resources/subscriptions/locations/read", f"/subscriptions/{azure.subscription}/locations"
    found = call_or_none(azure, action, lambda: list(get_values(azure, action, path, VERSION))) or []
    return [
        str(one["name"]) for one in found if (one.get("metadata") or {}).get("regionType", "Physical") == "Physical"
    ]


# What `stop` does to a machine, as a sentence without its subject.
STOP_EFFECT = "deallocates it: keeps its disk and its address, and costs those alone"
SIZE_PREFIX = "Standard_"
SkusByName = Mapping[str, Sku]


def available(azure: Azure, requirements: Requirements) -> Availability:
    """Return what Azure offers that satisfies the requirements, and the regions that did not answer.

    One call per region, none for one that was called some minutes ago. Raises InvalidRequest for a size, region or zone
    that does not exist, NoCapacity where Azure withholds all fitting sizes from this subscription.
    """
    names = _matching_sizes(requirements)
    regions = wanted_regions(azure, requirements, names) if names else ()
    if not regions:
        return Availability(())
    answers, unanswered = ask_each(
        regions, lambda region: skus(azure, region), MAX_PARALLEL, answer_timeout_s=azure.timeouts.change_s
    )
    configurations = tuple(
        configuration
        for region in sorted(answers)
        for name in names
        if (sku := answers[region].get(name.lower())) is not None
        for configuration in _configurations(azure, name, sku, region, requirements)
    )
    if not configurations and not unanswered:
        _raise_no_match(requirements, names, answers)
    return Availability(configurations, unanswered)


def _matching_sizes(requirements: Requirements) -> list[str]:
    """Return the sizes that satisfy the requirements: of the catalogue, or the one that is named."""
    catalogue_types = {one.name: one for one in instance_types(PROVIDER)}
    if requirements.instance_type is not None and requirements.instance_type not in catalogue_types:
        return [requirements.instance_type]
    return sorted(one.name for one in catalogue_types.values() if matches_requirements(one, requirements))


def _configurations(
    azure: Azure, name: str, sku: Sku, region: str, requirements: Requirements
) -> Iterator[MachineConfiguration]:
    zone = requirements.zone if requirements.zone is not None and ids.zone_number(requirements.zone) else region
    zone_number = ids.zone_number(zone)
    if sku.restriction or (zone_number is not None and zone_number not in sku.zones):
        return
    for market in allowed_markets(requirements):
        if market is Market.ON_DEMAND or sku.spot:
            yield MachineConfiguration(
                provider=PROVIDER,
                account=azure.account,
                region=region,
                zone=zone,
                instance_type=name,
                market=market,
                accelerators=_accelerators(name, sku),
                vcpus=sku.vcpus,
                memory_gib=sku.memory_gib,
                stop_effect=_erased_by_stop(sku) + STOP_EFFECT,
            )


def _accelerators(name: str, sku: Sku) -> tuple[Accelerator, ...]:
    """Return the GPUs by the catalogue; for a size that it lacks Azure says only how many they are."""
    known = gpus_of("azure", name)
    return known or ((Accelerator("GPU", sku.gpus),) if sku.gpus else ())


def _erased_by_stop(sku: Sku) -> str:
    """Return what stopping a machine of this size erases, as the beginning of `stop_effect`; empty for nothing."""
    return f"erases its temporary disk of {sku.temp_disk_gb:,.0f} GB (/mnt) and " if sku.temp_disk_gb else ""


def _raise_no_match(requirements: Requirements, names: list[str], answers: Mapping[str, SkusByName]) -> None:
    """Raise the error that explains why nothing is offered, if a zone, a size or a GPU was named; else return."""
    zone_number = ids.zone_number(requirements.zone) if requirements.zone else None
    zones = {zone for sizes in answers.values() for sku in sizes.values() for zone in sku.zones}
    if zone_number is not None and zone_number not in zones:
        listed = ", ".join(f"{next(iter(answers))}-{zone}" for zone in sorted(zones)) or "none"
        message = f"This subscription has no zone {requirements.zone!r}."
        raise InvalidRequest(message, field="--zone", value=requirements.zone, next=f"Use one of: {listed}.")
    skus_by_region = {
        region: skus
        for region, sizes in sorted(answers.items())
        if (skus := [sku for name in names if (sku := sizes.get(name.lower())) is not None])
    }
    if requirements.instance_type is not None and not skus_by_region:
        _raise_unknown_size(requirements.instance_type, answers)
    if (
        skus_by_region
        and all(sku.restriction for skus in skus_by_region.values() for sku in skus)
        and (requirements.instance_type or requirements.gpu)
    ):
        _raise_restricted(requirements, skus_by_region, len(answers) - len(skus_by_region))


def _raise_unknown_size(name: str, answers: Mapping[str, SkusByName]) -> None:
    """Raise InvalidRequest, which suggests a similar one, for an unknown size; return for one of the catalogue."""
    if name in {one.name for one in instance_types(PROVIDER)}:
        return
    known_sizes = {sku.name for sizes in answers.values() for sku in sizes.values()} | {
        one.name for one in instance_types(PROVIDER)
    }
    suggestion = f"{SIZE_PREFIX}{name}" if f"{SIZE_PREFIX}{name}" in known_sizes else closest_match(name, known_sizes)
    regions_text = f"in {next(iter(answers))}" if len(answers) == 1 else "in the regions of this account"
    raise InvalidRequest(
        f"Azure has no size {name!r} {regions_text}" + did_you_mean(suggestion, "."),
        field="--instance-type",
        value=name,
        next=f"Use {suggestion}, or name the --region that has it."
        if suggestion
        else "See those with GPUs: cloudgpu gpus --all",
    )


def _raise_restricted(
    requirements: Requirements, skus_by_region: Mapping[str, list[Sku]], other_region_count: int
) -> None:
    """Raise NoCapacity for sizes that Azure restricts. `other_region_count` regions do not list any of them."""
    first_region, *more_regions = skus_by_region
    sku = skus_by_region[first_region][0]
    other_sizes = {one.name for skus in skus_by_region.values() for one in skus} - {sku.name}
    sizes_text = f"{sku.name} and {_count_text(len(other_sizes), 'other size')}" if other_sizes else sku.name
    regions_text = (
        f"{first_region} and {_count_text(len(more_regions), 'more region')}" if more_regions else first_region
    )
    not_offered_text = (
        f" {_count_text(other_region_count, 'other region')} of this account do not offer it at all."
        if other_region_count > 1
        else ""
    )
    not_offered_text = (
        " The other region of this account does not offer it at all." if other_region_count == 1 else not_offered_text
    )
    raise NoCapacity(
        f"Azure withholds {sizes_text} from this subscription in {regions_text} ({sku.restriction}).{not_offered_text}",
        field="--instance-type" if requirements.instance_type else "--gpu",
        value=requirements.instance_type or requirements.gpu,
        next="Choose another --region or size, or ask for access: Help + support in the Azure portal, issue type "
        '"Service and subscription limits (quotas)".',
    )


def _count_text(zone_number: int, what: str) -> str:
    return f"{zone_number} {what}" if zone_number == 1 else f"{zone_number} {what}s"
