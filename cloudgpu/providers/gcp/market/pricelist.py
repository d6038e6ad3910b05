"""Prices Google Cloud's offers by a dated price list that adds machines up from their parts.

The list is embedded, or refreshed from Google's Cloud Billing Catalog. Google prices parts (CPU, memory, GPU, local
SSD), not machines; which parts a machine is of, its documentation says (https://cloud.google.com/compute/gpus-pricing,
https://cloud.google.com/compute/vm-instance-pricing). Disks and addresses are priced too. Machines whose parts are not
known for sure (A3 Mega and Ultra, A4, G4) are left to the embedded prices.

SKUs are asked page by page: `services.skus.list`
(https://cloud.google.com/billing/docs/reference/rest/v1/services.skus/list), with Google's own client. It sends a call
once: a refused call is sent again here, when Google says when.
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
from cloudgpu.core.model.offers import Available, Basis, Market, Price
from cloudgpu.errors import AuthFailed, CloudgpuError, InvalidRequest, MissingExtra, ProviderUnavailable, RateLimited
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.gcp.client import KIND
from cloudgpu.providers.gcp.compute.machine_types import unverified_price
from cloudgpu.providers.shared.errors import retry_after

SOURCE = "Google Cloud Billing Catalog (services.skus.list)"
PER_MONTH = "usd_per_gib_month"
MONTH_H = 730  # hours by which Google turns a price per month of local SSD into one per hour
GB_PER_GIB = Fraction(1024**3, 1000**3)
NANO = 1_000_000_000
_UNITS = {"h": PER_HOUR, "GiBy.h": "usd_per_gib_hour", "GiBy.mo": PER_MONTH, "GiBy": "usd_per_gb"}
_MARKETS = {"OnDemand": Market.ON_DEMAND, "Preemptible": Market.SPOT}
_EXCLUDED = re.compile(
    r"commit|sole tenancy|custom|reserved|\bdws\b|calendar|premium|extended|regional ", re.IGNORECASE
)
_SPOT = re.compile(r"^(?:Spot )?Preemptible |(?: attached to)? Spot Preemptible VMs", re.IGNORECASE)
_PLACE = r"(?: (?:running )?in .*)?$"

# What a SKU's description says, without its market and its place -> our word for the part.
_PARTS = {
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
_STORAGE = {
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
_FAMILIES = {"n1": "n1", "a2-highgpu": "a2", "a2-megagpu": "a2", "a2-ultragpu": "a2", "a3-highgpu": "a3", "g2": "g2"}
_WITH_DISKS = ("a2-ultragpu", "a3-highgpu")  # come with local SSD, which is charged
_GPUS = {"V100-16GB": "V100"}


@dataclass(frozen=True, slots=True)
class Rate:
    """One SKU's price: `amount` as it stands there, in `currency`, per `unit`; `note` says what is free before it."""

    name: str
    regions: tuple[str, ...]
    unit: str
    amount: Decimal
    currency: str
    note: str


def price_list(settings: ProviderSettings) -> PriceList:
    """Return Google's price list: one part, since its pages are of all regions. Raises as `catalogue.skus` does."""
    return PriceList("gcp", (part_from(skus(settings.pause), settings.clock()),))


def part_from(found: Iterable[Any], read_at: datetime) -> PricePart:
    """Return the prices that SKUs stand for; each machine is added up wherever all its parts have a price."""
    rows = PartBuilder("all regions", read_at)
    parts: dict[tuple[str, str, Market], Fraction] = {}
    for sku in found:
        market = _MARKETS.get(sku.category.usage_type)
        if market is None or sku.category.resource_family not in ("Compute", "Storage", "Network"):
            continue
        rate = _rate(sku, rows) if _is_relevant(sku.description) else None
        if rate is not None:
            _add_rate(sku.description, market, rate, rows, parts)
    _add_machines(rows, parts)
    return rows.part()


def _is_relevant(description: str) -> bool:
    return not _EXCLUDED.search(description) and bool(_kind(description, _PARTS) or _kind(description, _STORAGE))


def _kind(description: str, words: Mapping[str, str]) -> str:
    plain = description if "External IP" in description else _SPOT.sub("", description)
    for pattern, kind in words.items():
        found = re.match(pattern + _PLACE, plain)
        if found:
            return found.expand(kind)
    return ""


def _rate(sku: Any, rows: PartBuilder) -> Rate | None:
    """Return a SKU's price: of one in steps, the first that is not free. None, and refused, where it has none."""
    name = f"{sku.sku_id} ({sku.description})"
    if not sku.pricing_info or not sku.pricing_info[0].pricing_expression.tiered_rates:
        rows.refuse(name, "has no price")
        return None
    expression = sku.pricing_info[0].pricing_expression
    paid = [(_amount(tier.unit_price), tier.unit_price.currency_code) for tier in expression.tiered_rates]
    number = next((number for number, one in enumerate(paid) if one[0]), 0)
    amount, currency = paid[number]
    free = expression.tiered_rates[number].start_usage_amount
    unit = _UNITS.get(expression.usage_unit)
    if unit is None:
        rows.refuse(name, f"is priced by {expression.usage_unit!r}, which is not known")
        return None
    try:
        listed_usd(amount, currency)
    except ValueError as error:
        rows.refuse(name, str(error))
        return None
    note = f"first {free:g} {expression.usage_unit.partition('.')[0]} a month free" if free else ""
    return Rate(name, tuple(sku.service_regions), unit, amount, currency, note)


def _amount(price: Any) -> Decimal:
    return Decimal(price.units) + Decimal(price.nanos) / NANO


def _add_rate(
    description: str, market: Market, rate: Rate, rows: PartBuilder, parts: dict[tuple[str, str, Market], Fraction]
) -> None:
    part, kind = _kind(description, _PARTS), _kind(description, _STORAGE)
    is_spot = bool(_SPOT.search(description)) and "External IP" not in description
    if is_spot != (market is Market.SPOT):
        rows.refuse(rate.name, f"is sold as {market}, and its name says otherwise")
        return
    for region in rate.regions:
        if part:
            key = (part, region, market)
            if parts.setdefault(key, Fraction(rate.amount)) != Fraction(rate.amount):
                rows.refuse(rate.name, f"is a second price of {part} in {region}")
        if kind and market is Market.ON_DEMAND:
            where = "*" if region == "global" else region
            _add_storage(rows, RowKey(kind, where, None), rate)


def _add_storage(rows: PartBuilder, key: RowKey, rate: Rate) -> None:
    rows.add(key, rate.unit, rate.amount, currency=rate.currency, source=SOURCE, name=rate.name, note=rate.note)


def _add_machines(rows: PartBuilder, parts: Mapping[tuple[str, str, Market], Fraction]) -> None:
    places = sorted({(region, market) for _, region, market in parts})
    for machine_type in instance_types("gcp"):
        needed = list(_parts_of(machine_type))
        for region, market in places if needed else ():
            priced = [(amount, parts.get((part, region, market))) for part, amount in needed]
            if all(price is not None for _, price in priced):
                total = sum((Fraction(amount) * (price or 0) for amount, price in priced), Fraction(0))
                note = f"added up: {', '.join(f'{float(amount):g} {part}' for part, amount in needed)}"
                rows.add(
                    RowKey(machine_type.name, region, market),
                    PER_HOUR,
                    Decimal(round(total * NANO)) / NANO,
                    source=SOURCE,
                    name=machine_type.name,
                    basis=Basis.DERIVED,
                    note=note,
                )


def _parts_of(machine_type: InstanceType) -> Iterator[tuple[str, Fraction]]:
    """Yield the parts of a machine and how much of each; nothing for one whose parts are not known for sure."""
    series = machine_type.name.partition("-")[0]
    subtype = "-".join(machine_type.name.split("-")[:2])
    family = _FAMILIES.get(subtype) or _FAMILIES.get(series)
    if (
        family is None
        or (family == "n1" and not component_name(machine_type.name))
        or (subtype in _WITH_DISKS and not machine_type.local_ssd_gb)
    ):
        return
    yield f"{family} Core", Fraction(machine_type.vcpus)
    yield f"{family} Ram", Fraction(machine_type.memory_gib)
    yield f"gpu {_GPUS.get(machine_type.gpu.name, machine_type.gpu.name)}", Fraction(machine_type.gpu.count)
    if subtype in _WITH_DISKS:
        yield "local-ssd", round(Fraction(machine_type.local_ssd_gb or 0) / GB_PER_GIB) / Fraction(MONTH_H)


def prices(offers: Sequence[Available]) -> list[Price | None]:
    """Return one price per offer, in order, on demand or spot, with its basis; None where the list has none. No call.

    Google tells prices part by part and not for one machine, and changes those of spot machines at most once a month
    ("Spot VMs pricing"): `cloudgpu catalog refresh` adds them up anew.
    """
    listed = (listed_price(KIND, item.instance_type, item.region, item.market) for item in offers)
    return [price or unverified_price(item) for price, item in zip(listed, offers, strict=True)]


COMPUTE = "services/6F81-5844-456A"  # Compute Engine: https://cloud.google.com/skus
ENDPOINT = "CLOUDGPU_GCP_ENDPOINT"
PAGE = 5000  # the most that the method gives at once
SENDS = 5  # of one page, where Google says that it is busy
LONGEST_WAIT_S, DEFAULT_WAIT_S = 60.0, 2.0
TIMEOUT_S = 20.0  # a page is long, and only `catalog refresh` waits for it
MAX_PAGES = 500


def skus(pause: Callable[[float], None]) -> Iterator[Any]:
    """Yield every SKU of Compute Engine; `pause` waits so many seconds.

    Raises MissingExtra, AuthFailed, InvalidRequest for an endpoint that is none, and ProviderUnavailable for an
    answer that is none, a page that comes again or more pages than there can be.
    """
    client = _client()
    token, seen = "", set[str]()
    for _ in range(MAX_PAGES):
        page = _page(client, token, pause)
        yield from page.skus
        token = page.next_page_token
        if not token:
            return
        if token in seen:
            break
        seen.add(token)
    raise _unavailable("gives the same page again and again, so its list has no end")


def _client() -> Any:
    try:
        import google.auth
        from google.auth.credentials import AnonymousCredentials
        from google.auth.exceptions import GoogleAuthError
        from google.cloud.billing_v1 import CloudCatalogClient
    except ModuleNotFoundError as error:
        message = f"The price list of gcp needs {error.name}, which is not installed."
        raise MissingExtra(message, field="--provider", value="gcp", next="Run: pip install 'cloudgpu[gcp]'") from error
    endpoint = os.environ.get(ENDPOINT)
    if endpoint:  # somebody's own server: no credential of the user is sent there
        options = {"api_endpoint": endpoint.rstrip("/")}
        try:
            nobody = AnonymousCredentials()  # type: ignore[no-untyped-call]
            return CloudCatalogClient(credentials=nobody, transport="rest", client_options=options)
        except ValueError as error:
            message = f"{ENDPOINT} is not an address: {error}."
            raise InvalidRequest(message, field=ENDPOINT, value=endpoint, next="Correct or unset it.") from error
    try:
        credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-billing.readonly"])
    except GoogleAuthError as error:
        message = "There are no Google credentials, and Google gives its price list to no stranger."
        remedy = "Run: gcloud auth application-default login"
        raise AuthFailed(message, field="credentials", next=remedy) from error
    return CloudCatalogClient(credentials=credentials, transport="rest")


def _page(client: Any, token: str, pause: Callable[[float], None]) -> Any:
    """Return one page; a busy Google is asked again after the wait that it names, a failing one soon."""
    send = 0
    while True:
        send += 1
        try:
            request = {"parent": COMPUTE, "page_size": PAGE, "page_token": token, "currency_code": "USD"}
            return next(iter(client.list_skus(request=request, retry=None, timeout=TIMEOUT_S).pages))
        except Exception as error:
            fault = _fault(error)
            if send == SENDS or not _is_transient(fault):
                raise fault from error
            pause(_pause_s(fault, send))


def _is_transient(error: CloudgpuError) -> bool:
    return isinstance(error, RateLimited) or error.value in ("500", "502", "503", "504")


def _pause_s(error: CloudgpuError, send: int) -> float:
    requested_s = error.retry_after if isinstance(error, RateLimited) else None
    return min(LONGEST_WAIT_S, DEFAULT_WAIT_S * 2 ** (send - 1) if requested_s is None else requested_s)


def _fault(error: Exception) -> CloudgpuError:
    """Return what an exception of Google's client means to us; its code decides, never its wording."""
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


def _unavailable(says: str, value: str | None = None) -> ProviderUnavailable:
    return ProviderUnavailable(f"Google's price list {says}.", field="provider", value=value)
