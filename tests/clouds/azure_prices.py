"""The Azure Retail Prices API on loopback: items as Azure writes them, pages by link, an OData filter held to."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from tests.clouds.price_server import PriceServer, Refusal

PATH = "/api/retail/prices"
REGIONS = ("eastus", "koreacentral", "westeurope")
_EQUAL = re.compile(r"(\w+) eq '([^']*)'")
_CONTAINS = re.compile(r"contains\((\w+), ?'([^']*)'\)")
FIELDS = {"serviceName", "armRegionName", "priceType", "armSkuName", "productName", "meterName", "skuName"}


def item(
    service: str, product: str, sku: str, meter: str, usd: Any, unit: str, region: str, **more: Any
) -> dict[str, Any]:
    """Return an item with every field that the API documents."""
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": usd,
        "unitPrice": usd,
        "armRegionName": region,
        "location": "somewhere",
        "effectiveStartDate": "2024-01-01T00:00:00Z",
        "meterId": "000a794b-bdb0-58be-a0cd-0c3a0f222923",
        "meterName": meter,
        "productId": "DZH318Z0BQPS",
        "skuId": "DZH318Z0BQPS/00TG",
        "productName": product,
        "skuName": sku,
        "serviceName": service,
        "serviceId": "DZH313Z7MMC8",
        "serviceFamily": "Compute",
        "unitOfMeasure": unit,
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": "",
        **more,
    }


def machine(arm: str, usd: Any, region: str, *, ending: str = "", windows: str = "", **more: Any) -> dict[str, Any]:
    """Return the item of a machine; `ending` is ` Spot` or ` Low Priority`."""
    meter = arm.removeprefix("Standard_").replace("_", " ") + ending
    product = f"Virtual Machines N Series{windows}"
    return item("Virtual Machines", product, meter, meter, usd, "1 Hour", region, armSkuName=arm, **more)


def usual() -> list[dict[str, Any]]:
    """Return machines, disks, addresses and traffic of three regions, and much that is none of ours."""
    found = []
    for region in REGIONS:
        found += [
            machine("Standard_B1ms", 0.0207, region),
            machine("Standard_NC4as_T4_v3", 0.526, region),
            machine("Standard_NC4as_T4_v3", 0.1052, region, ending=" Spot"),
            machine("Standard_NC4as_T4_v3", 0.0921, region, ending=" Low Priority"),
            machine("Standard_NC4as_T4_v3", 0.71, region, windows=" Windows"),
            machine("Standard_NC24ads_A100_v4", 3.673, region),
            machine("Standard_NC24ads_A100_v4", 2.9, region, type="DevTestConsumption"),
            item("Storage", "Premium SSD Managed Disks", "P10 LRS", "P10 LRS Disk", 19.71, "1/Month", region),
            item("Storage", "Premium SSD Managed Disks", "P10 ZRS", "P10 ZRS Disk", 29.57, "1/Month", region),
            item("Storage", "Standard SSD Managed Disks", "E10 LRS", "E10 LRS Disk", 9.6, "1/Month", region),
            item("Storage", "Standard SSD Managed Disks", "E10 LRS", "E10 LRS Disk Operations", 0.002, "10K", region),
            item("Storage", "Standard HDD Managed Disks", "Snapshots LRS", "LRS Snapshots", 0.05, "1 GB/Month", region),
            item(
                "Virtual Network", "IP Addresses", "Standard", "Standard IPv4 Static Public IP", 0.005, "1 Hour", region
            ),
            item("Bandwidth", "Rtn Preference: MGN", "Standard", "Standard Data Transfer Out", 0.0, "1 GB", region),
            item(
                "Bandwidth",
                "Rtn Preference: MGN",
                "Standard",
                "Standard Data Transfer Out",
                0.087,
                "1 GB",
                region,
                tierMinimumUnits=100.0,
            ),
            item(
                "Bandwidth",
                "Rtn Preference: MGN",
                "Standard",
                "Standard Data Transfer Out",
                0.083,
                "1 GB",
                region,
                tierMinimumUnits=10335.0,
            ),
        ]
    return found


class AzurePrices(PriceServer):
    """Serves `items`, `size` a page. `next_link` makes the link to the following page out of the usual one."""

    def __init__(self) -> None:
        super().__init__()
        self.items = usual()
        self.size = 4
        self.next_link = str

    def page(self, path: str, query: dict[str, str], headers: Any) -> dict[str, Any]:
        if path != PATH or set(query) - {"api-version", "currencyCode", "$filter", "$skip"}:
            raise Refusal(400, f"no such question: {path} {sorted(query)}")
        if query.get("api-version") != "2023-01-01-preview" or headers.get("Authorization"):
            raise Refusal(400, "another version, or a credential")
        meant = [one for one in self.items if fits(one, query.get("$filter", ""))]
        begin = int(query.get("$skip") or 0)
        page = meant[begin : begin + self.size]
        link = None
        if begin + self.size < len(meant):
            asked = f"api-version=2023-01-01-preview&$filter={quote(query['$filter'])}&$skip={begin + self.size}"
            link = self.next_link(f"{self.url}{PATH}?{asked}")
        return {
            "BillingCurrency": "USD",
            "CustomerEntityId": "Default",
            "CustomerEntityType": "Retail",
            "Items": page,
            "NextPageLink": link,
            "Count": len(page),
        }


def fits(one: dict[str, Any], text: str) -> bool:
    """Say whether an item is meant by a filter; raise Refusal for a filter that the API would not take."""
    for term in text.split(" and "):
        equal, contains = _EQUAL.fullmatch(term), _CONTAINS.fullmatch(term)
        found = equal or contains
        if found is None or found[1] not in FIELDS:
            raise Refusal(400, f"Invalid OData parameters supplied: {term}")
        value = str(one["type" if found[1] == "priceType" else found[1]])
        if value != found[2] if equal else found[2] not in value:
            return False
    return True
