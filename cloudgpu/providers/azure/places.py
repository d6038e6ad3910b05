"""Which regions a wish means: the one that it names, checked, or those of the account where it may be sold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cloudgpu.catalog import priced_in
from cloudgpu.catalog import regions as listed_regions
from cloudgpu.core.model.account import Region
from cloudgpu.core.model.offers import Want
from cloudgpu.core.values.naming import near
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.azure import ids, plainly
from cloudgpu.providers.azure.ask import look
from cloudgpu.providers.wishes import region as wished_region

if TYPE_CHECKING:
    from cloudgpu.providers.azure.client import Azure

VERSION = "2022-12-01"  # of Microsoft.Resources/subscriptions
_PORTS = {"https": 443, "http": 80}
NO_ZONE = "no zone of Azure"
ZONE_LIKE = "Write it like eastus-1, or like eastus for anywhere in that region."


def account_regions(azure: Azure) -> tuple[str, ...]:
    """Return the regions that this account uses: those of the settings, else all that the price list has.

    Asks nothing. What a subscription may use beyond that list, it uses where `--region` names it.
    """
    chosen = azure.options.regions or tuple(sorted(listed_regions("azure")))
    return tuple(one for one in chosen if one not in azure.options.exclude_regions)


def wanted_regions(azure: Azure, want: Want, names: Sequence[str]) -> tuple[str, ...]:
    """Return the regions in which to look for the sizes `names`: where the price list has one, else all. Asks nothing.

    Raises InvalidRequest for a region that the account does not use, a zone that is none, or one of another region.
    """
    named = named_region(azure, want)
    if named is not None:
        return (named,)
    priced = priced_in("azure")
    sold = frozenset[str]().union(*(priced.get(name, ()) for name in names))
    unlisted = any(name not in priced for name in names)
    return tuple(one for one in account_regions(azure) if one in sold or unlisted)


def named_region(azure: Azure, want: Want) -> str | None:
    """Return the region that a wish names, by itself or by its zone, None for no wish. Raises InvalidRequest."""
    region = wished_region(want, ids.region_of, NO_ZONE, ZONE_LIKE)
    if region is not None:
        check_region(azure, region)
    return region


def check_region(azure: Azure, region: str) -> None:
    """Raise InvalidRequest, with the near one, for a region that this account does not use.

    What the settings and the price list know is not asked; for any other, Azure is asked what there is.
    """
    known, chosen = listed_regions("azure"), azure.options.regions
    if region in azure.options.exclude_regions or (chosen and region not in chosen and region in known):
        message = f"Account {azure.account} does not use {region}: so its settings say, and ls would not look there."
        way = f"Change regions or exclude_regions of accounts.{azure.account} in config.toml."
        raise InvalidRequest(message, field="--region", value=region, next=way)
    if region in (*chosen, *known):
        return
    there = [str(one["name"]) for one in _locations(azure)] or known
    if region not in there:
        meant = near(region, there)
        message = f"Azure has no region {region!r} for account {azure.account}"
        message += f"; did you mean {meant!r}?" if meant else "."
        way = f"Use {meant}." if meant else f"Use one of: {', '.join(sorted(there))}."
        raise InvalidRequest(message, field="--region", value=region, next=way)


def endpoints(azure: Azure) -> list[Region]:
    """Return the regions of the account with the host of each one's Resource Manager. One call at most.

    The regional host is one that Azure documents for callers who want their requests to stay in a region
    ("Azure Resource Manager overview": https://westus.management.azure.com).
    """
    names = azure.options.regions or tuple(str(one["name"]) for one in _locations(azure)) or account_regions(azure)
    used = dict.fromkeys(name for name in names if name not in azure.options.exclude_regions)
    if azure.endpoint is None:
        return [Region(name, f"{name}.management.azure.com", 443) for name in used]
    parts = urlsplit(azure.endpoint)
    return [Region(name, parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 443)) for name in used]


def _locations(azure: Azure) -> list[Mapping[str, Any]]:
    """Return the subscription's physical regions as Azure tells them; none where it does not know the question."""
    action, path = "Microsoft.Resources/subscriptions/locations/read", f"/subscriptions/{azure.subscription}/locations"
    found = look(azure, action, lambda: list(plainly.pages(azure, action, path, VERSION))) or []
    return [one for one in found if (one.get("metadata") or {}).get("regionType", "Physical") == "Physical"]
