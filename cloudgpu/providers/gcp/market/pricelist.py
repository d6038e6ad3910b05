"""Prices Google Cloud's offers by a dated price list, in which a machine's price is the sum of its components'.

The list is embedded, or refreshed from Google's Cloud Billing Catalog. Google prices components (CPU, memory, GPU,
local SSD), not machines; which components a machine has, its documentation says
(https://cloud.google.com/compute/gpus-pricing, https://cloud.google.com/compute/vm-instance-pricing). Disks and
addresses are priced too. Machines whose components are not known for sure (A3 Mega and Ultra, A4, G4) have only the
embedded prices.

SKUs are read page by page: `services.skus.list`
(https://cloud.google.com/billing/docs/reference/rest/v1/services.skus/list), with Google's own client. It sends a call
once: here a throttled or failed call is sent again after a pause.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from cloudgpu.catalog import instance_types, listed_price
from cloudgpu.catalog.price_history import component_name
from cloudgpu.core.catalog.catalog import InstanceType
from cloudgpu.core.catalog.pricelist import PER_HOUR, PartBuilder, PriceList, PricePart, RowKey, listed_usd
from cloudgpu.core.model.offers import Basis, MachineConfiguration, Market, Price
from cloudgpu.errors import AuthFailed, CloudgpuError, InvalidRequest, ProviderUnavailable, RateLimited
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.gcp.client import PROVIDER
from cloudgpu.providers.gcp.compute.machine_types import unverified_price
from cloudgpu.providers.gcp.credentials import default_credentials
from cloudgpu.providers.shared.calls import linked_pages
from cloudgpu.providers.shared.errors import missing_sdk_error, retry_after

SOURCE = "Google Cloud Billing Catalog (services.skus.list)"
PER_MONTH = "usd_per_gib_month"  # a key of the price list
HOURS_PER_MONTH = 730  # hours by which Google turns a price per month of local SSD into one per hour
GB_PER_GIB = Fraction(1024**3, 1000**3)
NANOS = 1_000_000_000
# Keys of the price list, by Google's unit.
_UNITS = {"h": PER_HOUR, "GiBy.h": "usd_per_gib_hour", "GiBy.mo": PER_MONTH, "GiBy": "usd_per_gb"}
_MARKETS = {"OnDemand": Market.ON_DEMAND, "Preemptible": Market.SPOT}
# In the descriptions of SKUs that no machine of ours is billed by.
_EXCLUDED_SKUS = re.compile(
    r"commit|sole tenancy|custom|reserved|\bdws\b|calendar|premium|extended|regional ", re.IGNORECASE
)
_SPOT_TEXT = re.compile(r"^(?:Spot )?Preemptible |(?: attached to)? Spot Preemptible VMs", re.IGNORECASE)
_LOCATION_SUFFIX = r"(?: (?:running )?in .*)?$"

# Our name of a component, by a pattern of the SKU's description without its market and location.
_COMPONENTS = {
    r"N1 Predefined Instance (Core|Ram)": r"n1 \1",
    r"A2 Instance (Core|Ram)": r"a2 \1",
    r"A3 Instance (Core|Ram)": r"a3 \1",
    r"G2 Instance (Core|Ram)": r"g2 \1",
    r"Nvidia Tesla (K80|P4|P100|V100|T4) GPU": r"gpu \1",
    r"Nvidia L4 GPU": "gpu L4",
    r"Nvidia Tesla A100 GPU": "gpu A100-40GB",
    r"Nvidia Tesla A100 80GB GPU": "gpu A100-80GB",
    r"Nvidia H100 80GB GPU": "gpu H100",
    r"SSD backed Local Storage(?: attached to)?": "local-ssd",
}
# The price list's name of a disk, an address or traffic, by such a pattern.
_STORAGE_KINDS = {
    r"Storage PD Capacity": "pd-standard",
    r"Balanced PD Capacity": "pd-balanced",
    r"SSD backed PD Capacity": "pd-ssd",
    r"Extreme PD Capacity": "pd-extreme",
    r"SSD backed Local Storage": "local-ssd",
    r"Storage PD Snapshot": "snapshot(standard)",
    r"Storage Image": "custom_image",
    r"Network Internet (?:Egress|Data Transfer Out) from (.+) to \1": "egress_internet_premium_first_1TB",
    r"Static Ip Charge": "static_ip_unused",
    r"External IP Charge on a Standard VM": "external_ip_on_standard_vm",
    r"External IP Charge on a Spot Preemptible VM": "external_ip_on_spot_vm",
}
# The first word of a machine's components (`_COMPONENTS`), by its series and subtype.
_FAMILIES = {"n1": "n1", "a2-highgpu": "a2", "a2-megagpu": "a2", "a2-ultragpu": "a2", "a3-highgpu": "a3", "g2": "g2"}
_WITH_LOCAL_SSD = ("a2-ultragpu", "a3-highgpu")  # come with local SSD, which is charged
_GPU_COMPONENTS = {"V100-16GB": "V100"}  # by the catalogue's name of a GPU, where the SKUs' is another


@dataclass(frozen=True, slots=True)
class SkuPrice:
    """One SKU's price: `amount` in `currency` per `unit` (a key of the price list); `note` says what is free before."""

    name: str
    regions: tuple[str, ...]
    unit: str
    amount: Decimal
    currency: str
    note: str


def price_list(settings: ProviderSettings) -> PriceList:
    """Return Google's price list: one part, since its pages are of all regions. Raises as `skus`."""
    return PriceList("gcp", (part_from(skus(settings.pause), settings.clock()),))


def part_from(skus_read: Iterable[Any], read_at: datetime) -> PricePart:
    """Return the prices of SKUs, and of each machine wherever all its components have a price."""
    builder = PartBuilder("all regions", read_at)
    component_prices: dict[tuple[str, str, Market], Fraction] = {}
    for sku in skus_read:
        market = _MARKETS.get(sku.category.usage_type)
        if market is None or sku.category.resource_family not in ("Compute", "Storage", "Network"):
            continue
        price = _sku_price(sku, builder) if _is_relevant(sku.description) else None
        if price is not None:
            _add_sku_price(sku.description, market, price, builder, component_prices)
    _add_machines(builder, component_prices)
    return builder.part()


def _is_relevant(description: str) -> bool:
    return not _EXCLUDED_SKUS.search(description) and bool(
        _name_for(description, _COMPONENTS) or _name_for(description, _STORAGE_KINDS)
    )


def _name_for(description: str, patterns: Mapping[str, str]) -> str:
    """Return our name of what a SKU prices, by the pattern that its description matches; empty for none."""
    text = description if "External IP" in description else _SPOT_TEXT.sub("", description)
    for pattern, name in patterns.items():
        match = re.match(pattern + _LOCATION_SUFFIX, text)
        if match:
            return match.expand(name)
    return ""


def _sku_price(sku: Any, builder: PartBuilder) -> SkuPrice | None:
    """Return a SKU's price, of tiers the first that is not free; None, recorded as refused, where it has none."""
    name = f"{sku.sku_id} ({sku.description})"
    if not sku.pricing_info or not sku.pricing_info[0].pricing_expression.tiered_rates:
        builder.refuse(name, "has no price")
        return None
    expression = sku.pricing_info[0].pricing_expression
    tiers = [(_amount(tier.unit_price), tier.unit_price.currency_code) for tier in expression.tiered_rates]
    tier_index = next((tier_index for tier_index, (tier_amount, _) in enumerate(tiers) if tier_amount), 0)
    amount, currency = tiers[tier_index]
    free_amount = expression.tiered_rates[tier_index].start_usage_amount
    unit = _UNITS.get(expression.usage_unit)
    if unit is None:
        builder.refuse(name, f"is priced by {expression.usage_unit!r}, which is not known")
        return None
    try:
        listed_usd(amount, currency)
    except ValueError as error:
        builder.refuse(name, str(error))
        return None
    note = f"first {free_amount:g} {expression.usage_unit.partition('.')[0]} a month free" if free_amount else ""
    return SkuPrice(name, tuple(sku.service_regions), unit, amount, currency, note)


def _amount(price: Any) -> Decimal:
    return Decimal(price.units) + Decimal(price.nanos) / NANOS


def _add_sku_price(
    description: str,
    market: Market,
    price: SkuPrice,
    builder: PartBuilder,
    component_prices: dict[tuple[str, str, Market], Fraction],
) -> None:
    component, storage_kind = _name_for(description, _COMPONENTS), _name_for(description, _STORAGE_KINDS)
    is_spot = bool(_SPOT_TEXT.search(description)) and "External IP" not in description
    if is_spot != (market is Market.SPOT):
        builder.refuse(price.name, f"is sold as {market}, and its name says otherwise")
        return
    for region in price.regions:
        if component:
            key = (component, region, market)
            if component_prices.setdefault(key, Fraction(price.amount)) != Fraction(price.amount):
                builder.refuse(price.name, f"is a second price of {component} in {region}")
        if storage_kind and market is Market.ON_DEMAND:
            region_key = "*" if region == "global" else region
            builder.add(
                RowKey(storage_kind, region_key, None),
                price.unit,
                price.amount,
                currency=price.currency,
                source=SOURCE,
                name=price.name,
                note=price.note,
            )


def _add_machines(builder: PartBuilder, component_prices: Mapping[tuple[str, str, Market], Fraction]) -> None:
    locations = sorted({(region, market) for _, region, market in component_prices})
    for machine_type in instance_types("gcp"):
        components = list(_components_of(machine_type))
        for region, market in locations if components else ():
            priced_components = [
                (quantity, component_prices.get((component, region, market))) for component, quantity in components
            ]
            if all(price is not None for _, price in priced_components):
                total = sum((quantity * (price or 0) for quantity, price in priced_components), Fraction(0))
                note = (
                    f"added up: {', '.join(f'{float(quantity):g} {component}' for component, quantity in components)}"
                )
                builder.add(
                    RowKey(machine_type.name, region, market),
                    PER_HOUR,
                    Decimal(round(total * NANOS)) / NANOS,
                    source=SOURCE,
                    name=machine_type.name,
                    basis=Basis.DERIVED,
                    note=note,
                )


def _components_of(machine_type: InstanceType) -> Iterator[tuple[str, Fraction]]:
    """Yield the components of a machine and how much of each; nothing where they are not known for sure."""
    series = machine_type.name.partition("-")[0]
    subtype = "-".join(machine_type.name.split("-")[:2])
    family = _FAMILIES.get(subtype) or _FAMILIES.get(series)
    if (
        family is None
        or (family == "n1" and not component_name(machine_type.name))
        or (subtype in _WITH_LOCAL_SSD and not machine_type.local_ssd_gb)
    ):
        return
    yield f"{family} Core", Fraction(machine_type.vcpus)
    yield f"{family} Ram", Fraction(machine_type.memory_gib)
    yield f"gpu {_GPU_COMPONENTS.get(machine_type.gpu.name, machine_type.gpu.name)}", Fraction(machine_type.gpu.count)
    if subtype in _WITH_LOCAL_SSD:
        yield "local-ssd", round(Fraction(machine_type.local_ssd_gb or 0) / GB_PER_GIB) / Fraction(HOURS_PER_MONTH)


def prices(offers: Sequence[MachineConfiguration]) -> list[Price | None]:
    """Return one price per offer, in order, on demand or spot, with its basis; None where the list has none. No call.

    Google has prices of components and not of machines, and changes those of spot machines at most once a month
    ("Spot VMs pricing"): `cloudgpu catalog refresh` reads them again.
    """
    listed = (listed_price(PROVIDER, offer.instance_type, offer.region, offer.market) for offer in offers)
    return [price or unverified_price(offer) for price, offer in zip(listed, offers, strict=True)]


COMPUTE_SERVICE = "services/6F81-5844-456A"  # Compute Engine: https://cloud.google.com/skus
ENDPOINT_VARIABLE = "CLOUDGPU_GCP_ENDPOINT"
PAGE_SIZE = 5000  # the most that the method gives at once
MAX_SENDS = 5  # of one page that was throttled or failed
LONGEST_WAIT_S, FIRST_WAIT_S = 60.0, 2.0
TIMEOUT_S = 20.0  # a page is long, and only `catalog refresh` waits for it


def skus(pause: Callable[[float], None]) -> Iterator[Any]:
    """Yield every SKU of Compute Engine; `pause` waits so many seconds.

    Raises MissingExtra, AuthFailed, InvalidRequest for an invalid endpoint, and ProviderUnavailable for a failed call,
    and a list without an end.
    """
    client = _client()
    endless_error = _unavailable("gives the same page again and again, so its list has no end")
    for page in linked_pages(
        lambda token: _page(client, token, pause), lambda page: str(page.next_page_token), endless_error
    ):
        yield from page.skus


def _client() -> Any:
    try:
        from google.auth.credentials import AnonymousCredentials
        from google.auth.exceptions import GoogleAuthError
        from google.cloud.billing_v1 import CloudCatalogClient
    except ModuleNotFoundError as error:
        raise missing_sdk_error(PROVIDER, error, what="The price list of", field="--provider") from error
    endpoint = os.environ.get(ENDPOINT_VARIABLE)
    if endpoint:  # somebody's own server: no credential of the user is sent there
        options = {"api_endpoint": endpoint.rstrip("/")}
        try:
            anonymous = AnonymousCredentials()  # type: ignore[no-untyped-call]
            return CloudCatalogClient(credentials=anonymous, transport="rest", client_options=options)
        except ValueError as error:
            message = f"{ENDPOINT_VARIABLE} is not an address: {error}."
            raise InvalidRequest(
                message, field=ENDPOINT_VARIABLE, value=endpoint, next="Correct or unset it."
            ) from error
    try:
        credentials, _ = default_credentials(["https://www.googleapis.com/auth/cloud-billing.readonly"])
    except GoogleAuthError as error:
        message = "There are no Google credentials, and Google gives its price list to no stranger."
        remedy = "Run: gcloud auth application-default login"
        raise AuthFailed(message, field="credentials", next=remedy) from error
    return CloudCatalogClient(credentials=credentials, transport="rest")


def _page(client: Any, token: str, pause: Callable[[float], None]) -> Any:
    """Return one page; a throttled call is sent again after the pause that Google names, a failed one sooner."""
    send = 0
    while True:
        send += 1
        try:
            request = {"parent": COMPUTE_SERVICE, "page_size": PAGE_SIZE, "page_token": token, "currency_code": "USD"}
            return next(iter(client.list_skus(request=request, retry=None, timeout=TIMEOUT_S).pages))
        except Exception as error:
            translated = _translated(error)
            if send == MAX_SENDS or not _is_transient(translated):
                raise translated from error
            pause(_pause_s(translated, send))


def _is_transient(error: CloudgpuError) -> bool:
    return isinstance(error, RateLimited) or error.value in ("500", "502", "503", "504")


def _pause_s(error: CloudgpuError, send: int) -> float:
    requested_s = error.retry_after if isinstance(error, RateLimited) else None
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** (send - 1) if requested_s is None else requested_s)


def _translated(error: Exception) -> CloudgpuError:
    """Return our error for an exception of Google's client; its code decides, never its wording."""
    from google.api_core.exceptions import GoogleAPICallError

    if not isinstance(error, GoogleAPICallError):
        return _unavailable(f"did not answer with a price list ({type(error).__name__})")
    code = int(error.code or 0)
    if code in (401, 403):
        message = f"Google refuses these credentials its price list ({code})."
        remedy = "Enable the Cloud Billing API for the project of your credentials: cloudbilling.googleapis.com"
        return AuthFailed(message, field="credentials", value=str(code), next=remedy)
    if code == 429:  # noqa: PLR2004  (too many requests)
        headers = getattr(error.response, "headers", None) or {}
        return RateLimited("Google's price list gets too many requests.", retry_after=retry_after(headers))
    return _unavailable(f"answered with the status {code}", str(code))


def _unavailable(problem: str, value: str | None = None) -> ProviderUnavailable:
    return ProviderUnavailable(f"Google's price list {problem}.", field="provider", value=value)
