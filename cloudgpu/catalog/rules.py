"""The rules by which the catalogue is made from the facts (the CSV tables in facts/).

They are lists of providers, regions and quotas, and what the words in `notes`, `source` and `confidence` mean: a type
is legacy, a price is derived, a figure is unverified.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from typing import Any

from cloudgpu.core.catalog.catalog import ANY, MARKETPLACES

CsvRow = dict[str, str]

PROVIDERS = ("aws", "gcp", "azure", "lambda", "runpod")  # those in the catalogue that are no marketplaces
LISTED_PROVIDERS = (*PROVIDERS, *MARKETPLACES)  # all that have prices in the catalogue
PROVIDERS_LISTED_BY_REGION = ("aws", "gcp", "azure")  # whose lists were read region by region
PARTLY_LISTED_PROVIDERS = ("runpod",)  # whose lists lack many GPUs and GPU counts that they sell
_RESTRICTED = re.compile(r"us-gov-.*|us-iso.*|cn-.*|usgov.*|usdod.*|china.*")
# The day on which the facts were compiled: retirements announced for an earlier day have happened.
COMPILED_ON = date(2026, 11, 20)

REGIONS = {
    "aws": """
        af-south-1 ap-east-1 ap-northeast-1 ap-northeast-2 ap-northeast-3 ap-south-1 ap-south-2 ap-southeast-1
        ap-southeast-2 ap-southeast-3 ap-southeast-5 ca-central-1 eu-central-1 eu-central-2 eu-north-1 eu-south-1
        eu-south-2 eu-west-1 eu-west-2 eu-west-3 il-central-1 me-central-1 me-south-1 sa-east-1 us-east-1 us-east-2
        us-west-1 us-west-2""".split(),
    "gcp": """
        asia-east1 asia-east2 asia-northeast1 asia-northeast3 asia-south1 asia-south2 asia-southeast1
        asia-southeast2 australia-southeast1 europe-north1 europe-west1 europe-west10 europe-west2 europe-west3
        europe-west4 europe-west6 europe-west8 europe-west9 me-central2 me-west1 northamerica-northeast1
        northamerica-northeast2 southamerica-east1 us-central1 us-east1 us-east4 us-east5 us-south1 us-west1
        us-west2 us-west3 us-west4""".split(),
    "azure": """
        australiaeast canadacentral centralus eastus eastus2 francecentral japaneast koreacentral northcentralus
        northeurope southcentralus southeastasia swedencentral uksouth westeurope westus2 westus3""".split(),
    "runpod": ["SECURE"],  # a GPU has one price in all its data centres
    "vast": ["VERIFIED"],  # of hosts that vast.ai has verified, wherever they are
    "lambda": """
        asia-northeast-1 asia-northeast-2 asia-south-1 australia-east-1 europe-central-1 me-west-1 us-east-1 us-east-2
        us-east-3 us-midwest-1 us-midwest-2 us-south-1 us-south-2 us-south-3 us-west-1 us-west-2 us-west-3""".split(),
}

PROVIDERS_WITHOUT_SIZES = ("runpod", "vast")  # rent containers; their lists give no vCPUs and no memory
# Items that are billed with a machine (kinds of disk, snapshots, addresses), as the facts call them. Each needs a price
# in every region with GPU machines, so that no plan is a guess.
PRICED_EVERYWHERE = {
    "lambda": (),
    "vast": (),
    "aws": ("gp3", "gp2", "ebs_snapshot", "public_ipv4"),
    "gcp": (
        "pd-standard",
        "pd-balanced",
        "pd-ssd",
        "hyperdisk-balanced",
        "snapshot(standard)",
        "custom_image",
        "static_ip_unused",
        "external_ip_on_standard_vm",
        "external_ip_on_spot_vm",
    ),
    "azure": (
        *(f"{letter}{size}" for letter in "PES" for size in ("4 32 GiB", "10 128 GiB", "20 512 GiB", "30 1024 GiB")),
        "snapshot",
        "public_ip_standard_static_regional",
    ),
    "runpod": ("container_disk", "volume_running", "volume_stopped"),
}

# Azure's NVv4 sizes are partitions of one MI25; the facts name the partition, not its size: unverified.
MI25_SHARES = {
    "Standard_NV4as_v4": 0.125,
    "Standard_NV8as_v4": 0.25,
    "Standard_NV16as_v4": 0.5,
    "Standard_NV32as_v4": 1.0,
}
# Google sells these GPUs apart from the machine; the facts' names of the parts.
ATTACHED_GPUS = {"T4": "nvidia-tesla-t4", "V100-16GB": "nvidia-tesla-v100", "P100": "nvidia-tesla-p100",
            "P4": "nvidia-tesla-p4", "K80": "nvidia-tesla-k80"}  # fmt: skip
# The Spot Advisor's ranges for the share of spot machines interrupted in a month, as the lowest and the highest.
SPOT_INTERRUPTION_RANGES = {
    "<5%": (0.0, 0.05),
    "5-10%": (0.05, 0.1),
    "10-15%": (0.1, 0.15),
    "15-20%": (0.15, 0.2),
    ">20%": (0.2, 1.0),
}
MIN_CPUS_PER_GPU, MAX_CPUS_PER_GPU = 2, 8  # of an n1 host where the facts name no limit


# The families of types that a quota of AWS counts: the letters of a type's name, or those and its generation.
_STANDARD_FAMILIES = "a c d h i im is m r t z"
QUOTA_FAMILIES = {
    "L-417A185B": "p",
    "L-7212CCBC": "p2 p3 p4",
    "L-C4BD4855": "p5 p6",  # P6 by one source alone
    "L-DB2E81BA": "g gr vt",
    "L-3819A6DF": "g gr vt",
    "L-1216C47A": _STANDARD_FAMILIES,
    "L-34B43A08": _STANDARD_FAMILIES,
}

# A quota of Google counts GPUs of one kind: of the newer ones the GPU family stands in its code.
_GPUS_WITH_OWN_MACHINES = ("A100-40GB", "A100-80GB", "L4")  # sold as part of a machine type
_ALL_REGIONS_QUOTA = "GPUS_ALL_REGIONS"  # counts every GPU of a project, wherever and on whatever market
_FAMILY_QUOTA = "GPUS-PER-GPU-FAMILY-per-project-region"
_FAMILY_CODES = {"H100": "NVIDIA_H100", "H200": "NVIDIA_H200", "B200": "NVIDIA_B200"}


def add_flat_price_clouds(facts: dict[str, list[CsvRow]]) -> dict[str, list[CsvRow]]:
    """Return the facts with types and prices of the clouds whose types have one price everywhere.

    Such a type is listed for all regions of its cloud, though a region may not sell it.
    """
    rows = facts["flat_price_clouds"]
    no_disk = dict.fromkeys(("local_ssd_gib", "local_ssd_unit", "notes"), "")
    types = [{**no_disk, **row} for row in rows]
    no_spot_price = dict.fromkeys(("price_spot_usd_hr", "spot_basis", "as_of_spot"), "")
    prices = [
        {**no_spot_price, **row, "region": region, "as_of_on_demand": row["as_of"]}
        for row in rows
        for region in REGIONS.get(row["cloud"], ())
    ]
    tables = {"gpu_instances": [*facts["gpu_instances"], *types], "prices": [*facts["prices"], *prices]}
    return {**facts, **tables}


def is_supported(row: CsvRow) -> bool:
    """Say whether a row of the facts is of a provider in the catalogue, and of a region that anyone may use."""
    return row.get("cloud", "aws") in LISTED_PROVIDERS and not _RESTRICTED.fullmatch(row.get("region", ""))


def without_search_notes(text: str) -> str:
    """Return a source without what only says how it was found: names of searches and ids of their hits."""
    return re.sub(r"\b[a-z]+_[a-z]+ (?=excerpts)", "", re.sub(r" \([a-z]+_[a-z]+ (?:id \d+|hits)\)", "", text))


def legacy_reason(row: CsvRow) -> str:
    """Return why a type can probably not be launched any more, from its notes; empty when nothing says so."""
    notes = row["notes"]
    for pattern, reason in _LEGACY_NOTES:
        match = re.search(pattern, notes)
        if match and (not match.groups() or date.fromisoformat(match[1]) <= COMPILED_ON):
            return match.expand(reason)
    return ""


_LEGACY_NOTES = (  # the first pattern that matches the notes counts
    (r"RETIRED (20\d\d-\d\d-\d\d)", r"retired \1, though its price is still published"),
    (r"retirement announced (?:for )?(20\d\d-\d\d-\d\d)", r"its retirement was announced for \1"),
    (r"LEGACY: family in .* absent from", "an old family, no longer in AWS's list of types, though still priced"),
    (r"LEGACY: absent from", "absent from Google's lists of GPUs of 2026; only an old price is left"),
    (r"LEGACY/RETIRED|retired_vm_series", "a retired series"),
    (r"retirement reported", "its retirement is reported; the date is not verified"),
)


def unverified_facts(row: CsvRow) -> list[str]:
    """Return which facts of a type are from memory, without a source."""
    notes, source = row["notes"], row["source"]
    unverified = {
        "share": row["instance_type"] in MI25_SHARES or ("partition" in notes and "recalled" in notes),
        "shape": "shape recalled" in notes,
        "count": "counts recalled" in source,
        "spot_only": spot_only(row),
    }
    return [name for name, is_unverified in unverified.items() if is_unverified]


def spot_only(row: CsvRow) -> bool:
    """Say whether a type has a list price but is not sold on demand."""
    return "Spot/Flex-start only" in row["notes"]


def host_limit(notes: str) -> tuple[int, float] | None:
    """Return the most vCPUs and GiB that a host of attached GPUs may have; None where the facts do not say."""
    match = re.search(r"max host (\d+)(?:vCPU)?/(\d+)", notes)
    return None if match is None else (int(match[1]), float(match[2]))


def price_basis(confidence: str) -> str:
    """Return how reliable a price is (`Basis`), from its text in the facts: the column `confidence` or `spot_basis`."""
    if confidence.startswith("derived"):
        return "derived"
    return "unverified" if "recalled" in confidence or confidence == "unverified" else "listed"


def confirmed_prices(facts: dict[str, list[CsvRow]]) -> Iterator[tuple[CsvRow, str, str]]:
    """Yield each price that a newer source confirms: the source's row, the machine type, and the price there."""
    for row in facts["confirmations"]:
        for entry in row["prices"].split():
            name, _, price = entry.partition("=")
            yield row, name, price


def lowest_number(text: str) -> float | None:
    """Return the first number in a text, which is the lowest (`180 usable/192 marketing` is 180); None for none."""
    match = re.search(r"[0-9]+(?:\.[0-9]+)?", text)
    return None if match is None else float(match[0])


def why_unknown(provider: str, name: str) -> str:
    """Return why a price is omitted whose type has no row of its own."""
    if name.endswith("_Promo"):
        return "a promotional meter of a retired size"
    if name.startswith("accelerator:"):
        return "a part of a machine: the price of its host was not found"
    return f"its GPU count and size were not found in any source for {provider}"


def quota_families(provider: str, name: str, gpu: str | None) -> tuple[str, ...]:
    """Return the families by which quotas count a type: at AWS `p` and `p3` for `p3dn.24xlarge`; at Google its GPU."""
    if provider == "gcp":
        return () if gpu is None else (gpu,)
    match = re.match(r"([a-z]+)(\d+)", name) if provider == "aws" else None
    return () if match is None else (match[1], match[1] + match[2])


def counted_quotas(row: CsvRow) -> list[dict[str, Any]]:
    """Return the quotas that a row of the facts describes: code, name, market, and the families that each counts."""
    code, market = row["code_or_metric"], row["market"].replace("-", "_")
    if code in QUOTA_FAMILIES:
        return [_counted_quota(code, row["name_or_note"], market, QUOTA_FAMILIES[code])]
    if row["cloud"] == "gcp" and row["family"] in (*ATTACHED_GPUS, *_GPUS_WITH_OWN_MACHINES):
        usage = "Spot" if market == "spot" else "Running"
        return [_counted_quota(code, f"{usage} {row['family']} GPUs", market, row["family"])]
    quotas: list[tuple[str, str, str]] = []
    if code == _ALL_REGIONS_QUOTA:
        quotas = [(code, "GPUs in all regions", ANY)]
    elif code.startswith(_FAMILY_QUOTA):
        quotas = [
            (f"{_FAMILY_QUOTA}:{family}", f"{gpu} GPUs", gpu) for gpu, family in _FAMILY_CODES.items() if family in code
        ]
    return [
        _counted_quota(quota_code, name, quota_market, gpu)
        for quota_code, name, gpu in quotas
        for quota_market in ("on_demand", "spot")
    ]


def _counted_quota(code: str, name: str, market: str, families: str) -> dict[str, Any]:
    return {"code": code, "name": name, "market": market, "families": families.split()}
