"""What is the same for every kind of resource: get, list, the list over all places, labels, delete."""

from __future__ import annotations

from tests.clouds.gcp import lists, operations
from tests.clouds.gcp.handlers import HANDLERS, Asked, Handler, answers
from tests.clouds.gcp.model import Key, Model, Thing, check_fingerprint, key_of, scope_of, shown, with_labels
from tests.clouds.gcp.stock import ZONES, all_zones
from tests.clouds.rest import Refusal

# By collection: the name of one in a path, and the scopes that it can be in.
ZONAL, REGIONAL = "zones", "regions"
COLLECTIONS = {
    "instances": ("instance", (ZONAL,)),
    "disks": ("disk", (ZONAL, REGIONAL)),
    "machineTypes": ("machineType", (ZONAL,)),
    "acceleratorTypes": ("acceleratorType", (ZONAL,)),
    "diskTypes": ("diskType", (ZONAL,)),
    "addresses": ("address", (REGIONAL, "global")),
    "subnetworks": ("subnetwork", (REGIONAL,)),
    "networks": ("network", ("global",)),
    "firewalls": ("firewall", ("global",)),
    "images": ("image", ("global",)),
    "snapshots": ("snapshot", ("global",)),
    "machineImages": ("machineImage", ("global",)),
}
SINGULAR = {"addresses": "address", "machineImages": "machineImage"}
LABELLED = {"instances": "instance", "disks": "resource", "images": "resource", "snapshots": "resource"}
LABELLED |= {"addresses": "resource", "machineImages": "resource"}
OPERATIONS = {"zoneOperations": "zone", "regionOperations": "region", "globalOperations": "global"}


def singular(collection: str) -> str:
    """Return the word for one of a collection."""
    return SINGULAR.get(collection, collection.removesuffix("s"))


def own(asked: Asked, collection: str) -> tuple[Key, Thing]:
    """Return the resource that a call names. Raises Refusal where there is none."""
    name = asked.where.get(COLLECTIONS[collection][0]) or asked.where["resource"]
    key = key_of(asked.call, collection, name)
    return key, asked.model.get(key)


def scopes(collection: str) -> list[str]:
    """Return all scopes that resources of a collection can be in."""
    kinds = COLLECTIONS[collection][1]
    found = ["global"] if "global" in kinds else []
    found += [f"regions/{one}" for one in ZONES] if REGIONAL in kinds else []
    return found + ([f"zones/{one}" for one in all_zones()] if ZONAL in kinds else [])


def check_scope(scope: str, project: str) -> None:
    """Raise Refusal for a zone or region that there is not."""
    kind, _, name = scope.partition("/")
    if name and name not in (all_zones() if kind == ZONAL else ZONES):
        raise Refusal("notFound", f"The resource 'projects/{project}/{scope}' was not found")


def _getter(collection: str) -> Handler:
    return lambda asked: shown(own(asked, collection)[1])


def _lister(collection: str) -> Handler:
    def answer(asked: Asked) -> Thing:
        scope, project = scope_of(asked.where), asked.where["project"]
        check_scope(scope, project)
        found = [one for key, one in asked.model.of(collection, project).items() if key.scope == scope]
        return lists.page(asked.call, found, singular(collection))

    return answer


def _aggregator(collection: str) -> Handler:
    def answer(asked: Asked) -> Thing:
        by_scope: dict[str, list[Thing]] = {scope: [] for scope in scopes(collection)}
        for key, one in asked.model.of(collection, asked.where["project"]).items():
            by_scope[key.scope].append(one)
        return lists.aggregated(asked.call, by_scope, collection, asked.silent)

    return answer


def _labeller(collection: str) -> Handler:
    def answer(asked: Asked) -> Thing:
        key, thing = own(asked, collection)
        if asked.body.get("labelFingerprint") != thing["labelFingerprint"]:
            raise Refusal("conditionNotMet", "Labels fingerprint either invalid or resource labels have changed")
        with_labels(thing, asked.body.get("labels"))
        return operations.begin(asked.model, asked.call, key, "setLabels")

    return answer


def delete(model: Model, key: Key) -> None:
    """Forget a resource; one that is gone already is none."""
    model.resources.pop(key, None)


def _operation_getter(asked: Asked) -> Thing:
    key = Key("operations", asked.where["project"], scope_of(asked.where), asked.where["operation"])
    return operations.get(asked.model, key)


def _operation_lister(asked: Asked) -> Thing:
    scope = scope_of(asked.where)
    check_scope(scope, asked.where["project"])
    found = [one for key, one in asked.model.operations.items() if key.scope == scope]
    return lists.page(asked.call, found, "operation")


@answers("compute.globalOperations.aggregatedList")
def operations_of_all(asked: Asked) -> Thing:
    """List the operations of all scopes."""
    by_scope: dict[str, list[Thing]] = {one: [] for one in [*scopes("addresses"), *scopes("instances")]}
    for key, one in asked.model.operations.items():
        by_scope[key.scope].append(one)
    return lists.aggregated(asked.call, by_scope, "operations", asked.silent)


def _fill() -> None:
    for collection, (_, kinds) in COLLECTIONS.items():
        HANDLERS[f"compute.{collection}.get"] = _getter(collection)
        HANDLERS[f"compute.{collection}.list"] = _lister(collection)
        if "global" not in kinds or len(kinds) > 1:
            HANDLERS[f"compute.{collection}.aggregatedList"] = _aggregator(collection)
        if collection in LABELLED:
            HANDLERS[f"compute.{collection}.setLabels"] = _labeller(collection)
    for verb, make in (("get", _getter), ("list", _lister), ("setLabels", _labeller)):
        HANDLERS[f"compute.globalAddresses.{verb}"] = make("addresses")
    for name in OPERATIONS:
        HANDLERS[f"compute.{name}.get"] = HANDLERS[f"compute.{name}.wait"] = _operation_getter
        HANDLERS[f"compute.{name}.list"] = _operation_lister


_fill()
__all__ = ["check_fingerprint", "check_scope", "delete", "own", "scopes", "singular"]
