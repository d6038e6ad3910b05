"""The Cloud Billing Catalog's services.skus.list on loopback: SKUs of a few regions, as Google writes them, paged.

Prices per part are those of a public page of 2026 where the facts have them; only sums of them are ever tested.
"""

from __future__ import annotations

from typing import Any

from tests.clouds.price_server import PriceServer, Refusal

PATH = "/v1/services/6F81-5844-456A/skus"
AMERICAS = ["us-central1", "us-east1", "us-west1"]
TAIWAN = ["asia-east1"]


def sku(
    description: str,
    usd: str | list[tuple[float, str]],
    unit: str = "h",
    regions: list[str] = AMERICAS,
    *,
    usage: str = "OnDemand",
    family: str = "Compute",
    currency: str = "USD",
) -> dict[str, Any]:
    """Return a SKU as the catalogue names it; a price in steps is a list of (from, price)."""
    steps = usd if isinstance(usd, list) else [(0, usd)]
    rates = [{"startUsageAmount": start, "unitPrice": money(price, currency)} for start, price in steps]
    identity = f"{abs(hash((description, tuple(regions), usage))) % 16**12:012X}"
    return {
        "name": f"services/6F81-5844-456A/skus/{identity}",
        "skuId": identity,
        "description": description,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": family,
            "resourceGroup": "GPU",
            "usageType": usage,
        },
        "serviceRegions": regions,
        "pricingInfo": [
            {
                "summary": "",
                "pricingExpression": {
                    "usageUnit": unit,
                    "displayQuantity": 1,
                    "tieredRates": rates,
                    "usageUnitDescription": unit,
                    "baseUnit": "s",
                    "baseUnitConversionFactor": 3600,
                },
                "currencyConversionRate": 1,
                "effectiveTime": "2026-11-20T12:00:00.000000Z",
            }
        ],
        "serviceProviderName": "Google",
        "geoTaxonomy": {"type": "MULTI_REGIONAL", "regions": regions},
    }


def money(usd: str, currency: str) -> dict[str, Any]:
    """Return an amount as google.type.Money: whole units as text, and nanos."""
    whole, _, rest = usd.lstrip("-").partition(".")
    sign = -1 if usd.startswith("-") else 1
    return {"currencyCode": currency, "units": str(sign * int(whole)), "nanos": sign * int((rest + "0" * 9)[:9])}


def usual() -> list[dict[str, Any]]:
    """Return the parts of N1 with T4, A2 and G2, disks and addresses, and SKUs that are none of ours."""
    spot = {"usage": "Preemptible"}
    return [
        sku("N1 Predefined Instance Core running in Americas", "0.031611"),
        sku("N1 Predefined Instance Ram running in Americas", "0.004237", "GiBy.h"),
        sku("Spot Preemptible N1 Predefined Instance Core running in Americas", "0.006655", **spot),
        sku("Spot Preemptible N1 Predefined Instance Ram running in Americas", "0.000892", "GiBy.h", **spot),
        sku("Nvidia Tesla T4 GPU running in Americas", "0.35"),
        sku("Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Americas", "0.119", **spot),
        sku("A2 Instance Core running in Americas", "0.031611"),
        sku("A2 Instance Ram running in Americas", "0.004237", "GiBy.h"),
        sku("Nvidia Tesla A100 GPU running in Americas", "2.933908"),
        sku("Nvidia Tesla A100 80GB GPU running in Americas", "3.92808"),
        sku("SSD backed Local Storage", "0.08", "GiBy.mo", family="Storage"),
        sku("G2 Instance Core running in Taiwan", "0.028913", regions=TAIWAN),
        sku("G2 Instance Ram running in Taiwan", "0.003387", "GiBy.h", TAIWAN),
        sku("Nvidia L4 GPU running in Taiwan", "0.648604", regions=TAIWAN),
        sku("Storage PD Capacity", [(0, "0"), (30, "0.04")], "GiBy.mo", family="Storage"),
        sku("Balanced PD Capacity in Taiwan", "0.1", "GiBy.mo", TAIWAN, family="Storage"),
        sku("Storage PD Snapshot", "0.05", "GiBy.mo", family="Storage"),
        sku("External IP Charge on a Spot Preemptible VM", "0.0025", regions=["global"], family="Network"),
        sku("Commitment v1: A2 Cpu in Americas for 1 Year", "0.019915", usage="Commit1Yr"),
        sku("A2 Instance Core running in Americas, Sole Tenancy", "0.0034"),
        sku("Regional Storage PD Capacity", "0.08", "GiBy.mo", family="Storage"),
        sku("Nvidia H100 Mega 80GB GPU attached to DWS Defined Duration VMs running in Americas", "0"),
    ]


class GcpPrices(PriceServer):
    """Serves `skus`, `size` a page; holds requests to what the method takes."""

    def __init__(self) -> None:
        super().__init__()
        self.skus = usual()
        self.size = 6
        self.repeats = False  # the token of each page names that page again

    def page(self, path: str, query: dict[str, str], headers: Any) -> dict[str, Any]:
        unknown = set(query) - {"pageSize", "pageToken", "currencyCode", "startTime", "endTime", "$alt", "alt", "key"}
        if path != PATH or unknown or not 0 < int(query.get("pageSize", 1)) <= 5000:
            raise Refusal(400, f"Request contains an invalid argument: {path} {sorted(unknown)}")
        if headers.get("Authorization"):
            raise Refusal(400, "a credential was sent to a server that is not Google's")
        begin = int(query.get("pageToken") or 0)
        following = begin if self.repeats else begin + self.size
        more = str(following) if begin + self.size < len(self.skus) else ""
        return {"skus": self.skus[begin : begin + self.size], "nextPageToken": more}
