"""What stands beside a machine in an estimate: its disk by the cloud's own kinds, its address, each with its rate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudgpu.catalog.disktypes import disk_type, takes, tier
from cloudgpu.catalog.rules import PROVIDERS
from cloudgpu.catalog.storage import Sort, sort_of, storage_kinds
from cloudgpu.control.estimate_asked import Address
from cloudgpu.control.extras import address_kind, rate
from cloudgpu.core.advice.estimate import Beside, While
from cloudgpu.core.values.naming import near
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.control.estimate_asked import Wish
    from cloudgpu.core.billing.rates import Rate
    from cloudgpu.core.catalog.catalog import CatalogOffer
    from cloudgpu.core.model.offers import Market

AZURE = {"premium-ssd": "Premium_LRS", "standard-ssd": "StandardSSD_LRS", "standard-hdd": "Standard_LRS"}
_USUAL = {"aws": "gp3", "azure": "premium-ssd"}  # as `up` takes them; on Google it depends on the type
_NO_DISKS = ("local-ssd",)  # comes with the machine, and goes with it
_KEPT_FREE = "static_ip_unused"  # an address of Google's while no machine uses it


@dataclass
class Rates:
    """The rates of one estimate, each looked up once."""

    _known: dict[tuple[str, str, str, int], Rate] = field(default_factory=dict)

    def of(self, provider: str, region: str, kind: str, quantity: int) -> Rate:
        """Return what so much of a kind costs there, as `extras.rate` says."""
        key = (provider, region, kind, quantity)
        if key not in self._known:
            self._known[key] = rate(provider, region, kind, quantity)
        return self._known[key]


def disk_kinds(provider: str) -> tuple[str, ...]:
    """Return the kinds of disk that a machine there can have, as `--disk` takes them."""
    if provider == "azure":
        return tuple(AZURE)
    return tuple(kind for kind in storage_kinds(provider) if sort_of(kind) is Sort.DISK and kind not in _NO_DISKS)


def wished_disks(asked: Sequence[str]) -> dict[str, str]:
    """Return the kind of disk that was asked for at each provider; raise InvalidRequest for a kind that none has."""
    found: dict[str, str] = {}
    known = {kind: provider for provider in PROVIDERS for kind in disk_kinds(provider)}
    known |= {sku.lower(): "azure" for sku in AZURE.values()}
    skus = {sku.lower(): name for name, sku in AZURE.items()}
    for name in asked:
        kind = name.lower()
        if kind not in known:
            raise _unknown(name, known)
        provider = known[kind]
        if provider in found:
            raise InvalidRequest(
                f"{found[provider]} and {name} are both disks of {provider}; a machine here has one.",
                field="--disk",
                value=name,
                next="Name one kind for each cloud, and their sizes together with --disk-gb.",
            )
        found[provider] = skus.get(kind, kind)
    return found


def _unknown(name: str, known: dict[str, str]) -> InvalidRequest:
    meant = near(name, known)
    kinds = "; ".join(f"{provider}: {', '.join(disk_kinds(provider))}" for provider in PROVIDERS)
    return InvalidRequest(
        f"No cloud has a disk {name!r}" + (f"; did you mean {meant!r}?" if meant else "."),
        field="--disk",
        value=name,
        next=f"Use one of {kinds}.",
    )


def disk_at(offer: CatalogOffer, wished: dict[str, str]) -> str:
    """Return which kind of disk a machine gets: the wished one where its type takes it, else what `up` takes."""
    shape = offer.type
    name = wished.get(shape.provider)
    if shape.provider != "gcp":
        return name or _USUAL[shape.provider]
    machine = shape.name.partition("+")[0]
    return name if name and takes(machine, name) else disk_type(machine)


def beside(wish: Wish, offer: CatalogOffer, wished: dict[str, str], rates: Rates) -> Iterator[Beside]:
    """Yield what is paid beside a machine: its disk and its address."""
    provider, region = offer.type.provider, offer.listed.region
    if wish.disk_gb:
        kind = disk_at(offer, wished)
        stored_as = tier(AZURE[kind], wish.disk_gb) if provider == "azure" else kind
        yield Beside("disk", rates.of(provider, region, stored_as, wish.disk_gb), While.KEPT)
    for name, paid in address_parts(provider, offer.listed.market, wish.address):
        yield Beside("address", rates.of(provider, region, name, 1), paid)


def address_parts(provider: str, market: Market, address: Address) -> Iterator[tuple[str, While]]:
    """Yield each price that an address has, and when it is paid.

    Azure's are static whatever is asked for: a Standard address stays until it is removed.
    """
    kind = address_kind(provider, market)
    if address is Address.NONE or kind is None:
        return
    if provider == "azure" or (provider == "aws" and address is Address.STATIC):
        yield kind, While.KEPT
        return
    yield kind, While.RUNNING
    if address is Address.STATIC:
        yield _KEPT_FREE, While.IDLE
