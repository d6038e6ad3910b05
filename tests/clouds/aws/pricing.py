"""On-demand prices: of GPU types from cloudgpu's catalogue, of a few CPU types from the table below."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from cloudgpu.catalog import listed_price
from cloudgpu.core.facts import Market

# us-east-1, recalled; other regions are a tenth dearer here. Only that there is a price is ever tested.
CPU = {
    "t3.micro": "0.0104",
    "t3.small": "0.0208",
    "t3.medium": "0.0416",
    "t4g.small": "0.0168",
    "m5.large": "0.096",
    "c5.large": "0.085",
}


def on_demand(type_name: str, region: str) -> Decimal | None:
    """Return the price per hour in USD; None where there is none."""
    if type_name in CPU:
        return Decimal(CPU[type_name]) * (1 if region == "us-east-1" else Decimal("1.1"))
    found = listed_price("aws", type_name, region, Market.ON_DEMAND)
    return None if found is None else found.per_hour.dollars


def get_products(parameters: dict[str, Any]) -> dict[str, Any]:
    """Answer the price list's GetProducts for instance types, by its filters instanceType and regionCode."""
    asked = {one["Field"]: one["Value"] for one in parameters.get("Filters", [])}
    names = [asked["instanceType"]] if "instanceType" in asked else list(CPU)
    region = asked.get("regionCode", "us-east-1")
    priced = ((name, on_demand(name, region)) for name in names)
    return {"FormatVersion": "aws_v1", "PriceList": [_product(n, region, p) for n, p in priced if p is not None]}


def _product(name: str, region: str, price: Decimal) -> str:
    attributes = {
        "instanceType": name,
        "regionCode": region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
    }
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": f"{price:.10f}"}, "beginRange": "0", "endRange": "Inf"}
    terms = {"OnDemand": {"SKU.TERM": {"priceDimensions": {"SKU.TERM.RATE": dimension}}}}
    product = {"productFamily": "Compute Instance", "sku": "SKU", "attributes": attributes}
    return json.dumps({"product": product, "serviceCode": "AmazonEC2", "terms": terms})
