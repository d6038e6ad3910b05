"""Projects, regions and zones: where there is something, the limits on it, and what the caller may do."""

from __future__ import annotations

import functools

from tests.clouds import gcp_prices
from tests.clouds.gcp import lists, operations, resources
from tests.clouds.gcp.handlers import Asked, answers
from tests.clouds.gcp.machine_checks import ALL_REGIONS, UNLIMITED, usage
from tests.clouds.gcp.model import NUMBER, PROJECT, ROOT, Key, Model, Thing, with_metadata
from tests.clouds.gcp.stock import GPUS, TYPES, ZONES, all_zones, machine_type, metric_of, zones_of
from tests.clouds.rest import Refusal

# What regions.get names of the limits on GPUs: those of newer families are in Cloud Quotas only.
SHOWN = [
    metric_of(gpu, spot=spot) for gpu in GPUS for spot in (False, True) if not gpu[7:].startswith(("h1", "h2", "b2"))
]
PAGE = 100
BEGUN = "2014-05-30T18:35:16.514-07:00"


def furnish(model: Model) -> None:
    """Put in machine types and accelerators: no call changes those, so every model has the same."""
    model.resources.update(_for_sale())


@functools.cache
def _for_sale() -> dict[Key, Thing]:
    shelf = Model()
    for kind in TYPES.values():
        for zone in kind.zones:
            shelf.add(Key("machineTypes", PROJECT, f"zones/{zone}", kind.name), machine_type(kind))["zone"] = zone
    for gpu, (most, _, _) in GPUS.items():
        for zone in zones_of(gpu):
            shown = {"maximumCardsPerInstance": most, "description": gpu.replace("-", " ").upper()}
            shelf.add(Key("acceleratorTypes", PROJECT, f"zones/{zone}", gpu), shown)
    return shelf.resources


@answers("compute.zones.list")
def zones(asked: Asked) -> Thing:
    """List the zones."""
    return lists.page(asked.call, [_zone(asked, one) for one in all_zones()], "zone")


@answers("compute.zones.get")
def zone(asked: Asked) -> Thing:
    """Return a zone."""
    resources.check_scope(f"zones/{asked.where['zone']}", asked.where["project"])
    return _zone(asked, asked.where["zone"])


def _zone(asked: Asked, name: str) -> Thing:
    base = f"{ROOT}/projects/{asked.where['project']}"
    region = f"{base}/regions/{name.rpartition('-')[0]}"
    made = {"kind": "compute#zone", "id": "2000", "creationTimestamp": BEGUN, "name": name, "status": "UP"}
    return {**made, "region": region, "selfLink": f"{base}/zones/{name}"}


@answers("compute.regions.list")
def regions(asked: Asked) -> Thing:
    """List the regions."""
    return lists.page(asked.call, [_region(asked, one) for one in ZONES], "region")


@answers("compute.regions.get")
def region(asked: Asked) -> Thing:
    """Return a region, with its limits."""
    resources.check_scope(f"regions/{asked.where['region']}", asked.where["project"])
    return _region(asked, asked.where["region"])


def _region(asked: Asked, name: str) -> Thing:
    base = f"{ROOT}/projects/{asked.where['project']}"
    made = {"kind": "compute#region", "id": "1000", "creationTimestamp": BEGUN, "name": name, "status": "UP"}
    made["quotas"] = [{"metric": "CPUS", "limit": 200.0, "usage": 0.0}]
    made["quotas"] += [
        {"metric": one, "limit": asked.model.limits.get((name, one), UNLIMITED), "usage": usage(asked.model, name, one)}
        for one in SHOWN
    ]
    made["zones"] = [f"{base}/zones/{name}-{letter}" for letter in ZONES[name]]
    return {**made, "selfLink": f"{base}/regions/{name}"}


@answers("compute.projects.get")
def project(asked: Asked) -> Thing:
    """Return the project, with the limits on all regions and the metadata of all machines."""
    name = asked.where["project"]
    if name not in {PROJECT, NUMBER}:
        raise Refusal("notFound", f"The resource 'projects/{name}' was not found")
    limit = asked.model.limits.get(("", ALL_REGIONS), UNLIMITED)
    used = usage(asked.model, "", ALL_REGIONS)
    made = {"kind": "compute#project", "id": NUMBER, "creationTimestamp": BEGUN, "name": PROJECT}
    made["quotas"] = [
        {"metric": "CPUS_ALL_REGIONS", "limit": 64.0, "usage": 0.0},
        {"metric": ALL_REGIONS, "limit": limit, "usage": float(used)},
    ]
    made["selfLink"] = f"{ROOT}/projects/{PROJECT}"
    made["defaultServiceAccount"] = f"{NUMBER}-compute@developer.gserviceaccount.com"
    holder: Thing = {}
    with_metadata(
        holder, {"items": [{"key": one, "value": text} for one, text in asked.model.project_metadata.items()]}
    )
    return {**made, "commonInstanceMetadata": holder["metadata"]}


@answers("compute.projects.setCommonInstanceMetadata")
def set_common_metadata(asked: Asked) -> Thing:
    """Set the metadata of all machines."""
    asked.model.project_metadata = {one["key"]: one["value"] for one in asked.body.get("items", [])}
    target = Key("projects", PROJECT, "global", PROJECT)
    return operations.begin(asked.model, asked.call, target, "setCommonInstanceMetadata")


@answers("cloudresourcemanager.projects.testIamPermissions", "cloudresourcemanager.v1.projects.testIamPermissions")
def test_permissions(asked: Asked) -> Thing:
    """Return those of the permissions that the caller has; an empty list is left out."""
    wanted = asked.body.get("permissions", [])
    if any("*" in one for one in wanted) or len(wanted) > 100:
        raise Refusal("badRequest", "Permissions must be named one by one, a hundred at most")
    for one in asked.model.strange & set(wanted):
        raise Refusal("badRequest", f"Permission {one} is not valid for this resource.")
    allowed = [one for one in wanted if asked.model.granted is None or one in asked.model.granted]
    allowed = [one for one in allowed if one not in asked.denied]
    return {"permissions": allowed} if allowed else {}


@answers("cloudbilling.services.skus.list")
def price_list(asked: Asked) -> Thing:
    """Return a page of the price list: that of the model of the Cloud Billing Catalog."""
    begin, skus = int(asked.call.query.get("pageToken") or 0), gcp_prices.usual()
    more = str(begin + PAGE) if begin + PAGE < len(skus) else ""
    return {"skus": skus[begin : begin + PAGE], "nextPageToken": more}


@answers("serviceusage.services.get")
def service(asked: Asked) -> Thing:
    """Return whether a service is switched on."""
    name = asked.where["servicesId"]
    state = "DISABLED" if name in asked.model.disabled else "ENABLED"
    return {"name": f"projects/{NUMBER}/services/{name}", "parent": f"projects/{NUMBER}", "state": state}


__all__ = ["furnish"]
