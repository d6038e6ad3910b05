"""The Price List Query API: GPU types, disks, snapshots, addresses and traffic, paged, by the filters that it knows.

Prices are those that come with cloudgpu (of a few CPU types, from the table below), unless the model says otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from cloudgpu.catalog import instance_type, instance_types
from cloudgpu.catalog.read import embedded_prices
from cloudgpu.core.model.offers import Market
from tests.clouds.aws.errors import AwsError
from tests.clouds.aws.model import Model

# us-east-1, unverified; other regions are a tenth dearer here. Only that there is a price is ever tested.
CPU = {
    "t3.micro": "0.0104",
    "t3.small": "0.0208",
    "t3.medium": "0.0416",
    "t4g.small": "0.0168",
    "m5.large": "0.096",
    "c5.large": "0.085",
}
PAGE = 20  # the service's own is 100: more than any region has here
FIELDS = {
    "AmazonEC2": {
        "instanceType",
        "instanceFamily",
        "regionCode",
        "operatingSystem",
        "tenancy",
        "preInstalledSw",
        "capacitystatus",
        "licenseModel",
        "productFamily",
    },
    "AmazonVPC": {"regionCode", "group"},
    "AWSDataTransfer": {"fromRegionCode", "transferType", "toLocation"},
}
VOLUMES = {"gp3": "0.08", "gp2": "0.1", "io1": "0.125", "io2": "0.125", "st1": "0.045", "sc1": "0.015"}


def on_demand(type_name: str, region: str) -> Decimal | None:
    """Return the price per hour in USD; None where there is none."""
    if type_name in CPU:
        return Decimal(CPU[type_name]) * (1 if region == "us-east-1" else Decimal("1.1"))
    listed = (
        one for one in embedded_prices("aws", type_name) if (one.region, one.market) == (region, Market.ON_DEMAND)
    )
    return next((one.price.per_hour.dollars for one in listed), None)


def get_products(model: Model, parameters: dict[str, Any]) -> dict[str, Any]:
    """Answer GetProducts: a page of the products that all filters mean."""
    service = parameters.get("ServiceCode", "AmazonEC2")
    asked = {one["Field"]: one["Value"] for one in parameters.get("Filters", [])}
    unknown = set(asked) - FIELDS.get(service, set())
    wrong = [one for one in parameters.get("Filters", []) if one.get("Type") != "TERM_MATCH"]
    if unknown or wrong or service not in FIELDS:
        raise AwsError("InvalidParameterException", f"{service} {sorted(unknown)}", 400)
    found = [*_products(model, service, asked), *(model.list_products if "instanceFamily" in asked else ())]
    begin = int(parameters.get("NextToken") or 0)
    more = {"NextToken": str(begin + PAGE)} if begin + PAGE < len(found) else {}
    return {"FormatVersion": "aws_v1", "PriceList": found[begin : begin + PAGE], **more}


def _products(model: Model, service: str, asked: dict[str, str]) -> Iterator[str]:
    region = asked.get("regionCode", asked.get("fromRegionCode", "us-east-1"))
    if service == "AmazonVPC":
        yield _product(model, "public_ipv4", region, "0.005", "Hrs", usagetype="X-PublicIPv4:InUseAddress")
        yield _product(model, "block", region, "0.008", "Hrs", usagetype="X-PublicIPv4:ContiguousBlock")
        if "group" not in asked:
            yield _product(model, "nat", region, "0.045", "Hrs", usagetype="X-NatGateway-Hours")
    elif service == "AWSDataTransfer":
        steps = {"0": "0.0000000000", "100": "0.0900000000", "10240": "0.0850000000"}
        yield _product(model, "egress", region, steps, "GB", usagetype="DataTransfer-Out-Bytes")
    elif asked.get("productFamily") == "Storage":
        for name, price in VOLUMES.items():
            yield _product(model, name, region, price, "GB-Mo", usagetype=f"EBS:VolumeUsage.{name}", volumeApiName=name)
        yield _product(model, "iops", region, "0.005", "IOPS-Mo", usagetype="EBS:VolumeP-IOPS.gp3")
    elif asked.get("productFamily") == "Storage Snapshot":
        yield _product(model, "ebs_snapshot", region, "0.05", "GB-Mo", usagetype="EBS:SnapshotUsage")
        yield _product(model, "archive", region, "0.0125", "GB-Mo", usagetype="EBS:SnapshotArchiveStorage")
    else:
        yield from _machines(model, asked, region)


def _machines(model: Model, asked: dict[str, str], region: str) -> Iterator[str]:
    names = [one.name for one in instance_types("aws")] if asked.get("instanceFamily") == "GPU instance" else list(CPU)
    for name in [asked["instanceType"]] if "instanceType" in asked else names:
        price = on_demand(name, region)
        if price is not None:
            yield _product(model, name, region, f"{price:.10f}", "Hrs", instanceType=name, **_shape(name))


def _shape(name: str) -> dict[str, str]:
    plain = {"operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}
    if name in CPU:
        return plain
    shape = instance_type("aws", name)
    return {**plain, "vcpu": str(shape.vcpus), "memory": f"{shape.memory_gib:g} GiB", "marketoption": "OnDemand"}


def _product(model: Model, name: str, region: str, price: Any, unit: str, **attributes: str) -> str:
    price = model.list_prices.get((name, region), price)
    steps = price if isinstance(price, dict) and "0" in price else {"0": price}
    dimensions = {
        f"{name}.{begin}": {
            "unit": unit,
            "pricePerUnit": paid if isinstance(paid, dict) else {"USD": paid},
            "beginRange": begin,
            "endRange": "Inf",
        }
        for begin, paid in reversed(steps.items())
    }
    product = {"sku": f"SKU-{name}", "attributes": {"regionCode": region, "usagetype": "", **attributes}}
    terms = {"OnDemand": {f"{name}.TERM": {"priceDimensions": dimensions}}}
    return json.dumps({"product": product, "serviceCode": "AmazonEC2", "terms": terms})
