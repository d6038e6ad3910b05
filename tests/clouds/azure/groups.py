"""Resource groups, tags at a scope, resource providers, the subscription: what Azure Resource Manager itself answers.

A group's deletion takes all of it, machines first; how long it shows them meanwhile is belief.
"""

from __future__ import annotations

import copy
from typing import Any

from tests.clouds.azure.handlers import answers, check_tags, fits, pages, patch
from tests.clouds.azure.model import GROUPS, INTERFACES, MACHINES, SUBSCRIPTION, TENANT, Ask, Model, Thing, group_id
from tests.clouds.azure.operations import begin, overtake
from tests.clouds.rest import Refusal, Reply

REGIONS = ("eastus", "westus2", "westeurope", "koreacentral")
NAMESPACES = (
    "Microsoft.Authorization",
    "Microsoft.Compute",
    "Microsoft.ComputeSchedule",
    "Microsoft.Consumption",
    "Microsoft.ManagedIdentity",
    "Microsoft.Network",
    "Microsoft.Quota",
    "Microsoft.Resources",
)


@answers("ResourceGroups.CreateOrUpdate")
def create_group(model: Model, ask: Ask) -> Reply:
    """Make one, or replace its tags; its region stays (REST reference: a PUT with another one is refused)."""
    there = model.resources.get(ask.id.lower())
    region, tags = ask.body["location"].lower().replace(" ", ""), ask.body.get("tags") or {}
    check_tags(tags)
    _check_region(region)
    if there is not None:
        model.living_group(ask.id)
        if there.region != region:
            at = f"in location '{there.region}'"
            raise Refusal(
                "InvalidResourceGroupLocation", f"The Resource group '{there.name}' already exists {at}.", 409
            )
        there.body["tags"] = dict(tags)
        return Reply(200, copy.deepcopy(there.body))
    made = model.put(ask.id, {"location": region, "tags": tags, "properties": {"provisioningState": "Succeeded"}})
    return Reply(201, copy.deepcopy(made.body))


def _check_region(region: str) -> None:
    if region not in REGIONS:
        sentence = f"The provided location '{region}' is not available for resource group."
        raise Refusal("LocationNotAvailableForResourceGroup", sentence)


@answers("ResourceGroups.Get")
def get_group(model: Model, ask: Ask) -> Reply:
    return Reply(200, copy.deepcopy(_group(model, ask.id).body))


def _group(model: Model, id_: str) -> Thing:
    found = model.resources.get(id_.lower())
    if found is None:
        raise Refusal("ResourceGroupNotFound", f"Resource group '{id_.rpartition('/')[2]}' could not be found.")
    return found


@answers("ResourceGroups.CheckExistence")
def group_exists(model: Model, ask: Ask) -> Reply:
    return Reply(204 if ask.id.lower() in model.resources else 404)


@answers("ResourceGroups.List")
def list_groups(model: Model, ask: Ask) -> Reply:
    text = ask.query.get("$filter")
    return pages(model, ask, (one.body for one in model.of_kind(GROUPS) if text is None or fits(one, text)))


@answers("ResourceGroups.Update")
def update_group(model: Model, ask: Ask) -> Reply:
    found = _group(model, ask.id)
    patch(model, found, ask.body or {})
    return Reply(200, copy.deepcopy(found.body))


@answers("ResourceGroups.Delete")
def delete_group(model: Model, ask: Ask) -> Reply:
    """Take all of it away: the machines when the dwell `deleting` is over, the rest at the end of `group`."""
    found = _group(model, ask.id)
    _refuse_when_used_from_outside(model, found)
    found.facts["provisioningState"] = "Deleting"
    for machine in model.of_kind(MACHINES, found.name):
        overtake(model, machine.id)
        machine.facts["provisioningState"] = "Deleting"
        model.clock.later(f"operation:{machine.id.lower()}", "deleting", lambda one=machine: _machine_goes(model, one))
    return begin(model, ask, "group", lambda: _goes(model, found), followed="location")


def _refuse_when_used_from_outside(model: Model, group: Thing) -> None:
    """A disk that a machine of another group uses keeps its group (documentation of managed disks): unverified."""
    for one in list(model.resources.values()):
        owner = one.body.get("managedBy")
        if one.group == group.name.lower() and owner and owner.lower().split("/")[4] != group.name.lower():
            raise Refusal("ResourceGroupDeletionBlocked", f"'{one.name}' is used by '{owner}'.", 409)
    inside = f"{group.id.lower()}/providers/microsoft.network/virtualnetworks/"
    for one in model.of_kind(INTERFACES):  # Azure says so inside the operation, or at once: unverified
        parts = [part.get("properties") or {} for part in one.facts.get("ipConfigurations", [])]
        used = any(part.get("subnet", {}).get("id", "").lower().startswith(inside) for part in parts)
        if used and one.group != group.name.lower():
            raise Refusal("InUseSubnetCannotBeDeleted", f"A subnet of '{group.name}' is in use by '{one.id}'.", 409)


def _machine_goes(model: Model, machine: Thing) -> None:
    from tests.clouds.azure.machines import vanish

    if machine.id.lower() in model.resources:
        vanish(model, machine)


def _goes(model: Model, group: Thing) -> None:
    for machine in model.of_kind(MACHINES, group.name):
        model.clock.cancel(f"operation:{machine.id.lower()}")
        _machine_goes(model, machine)
    for key in [key for key, one in model.resources.items() if one.group == group.name.lower()]:
        model.drop(key)
    model.drop(group.id)


@answers("Resources.List", "Resources.ListByResourceGroup")
def list_resources(model: Model, ask: Ask) -> Reply:
    """List things of all kinds, by a tag or a type; what is inside another thing is none of them."""
    group = ask.where.get("resourceGroupName")
    if group is not None:
        _group(model, group_id(group))
    text = ask.query.get("$filter")
    rows = [
        _generic(one) for one in model.resources.values() if _is_listed(one, group) and (not text or fits(one, text))
    ]
    return pages(model, ask, rows)


def _is_listed(thing: Thing, group: str | None) -> bool:
    inside = thing.kind.count("/") > 1 and not thing.kind.startswith("Microsoft.Compute/")
    return thing.kind != GROUPS and not inside and (group is None or thing.group == group.lower())


def _generic(thing: Thing) -> dict[str, Any]:
    return {
        name: thing.body[name] for name in ("id", "name", "type", "location", "tags", "zones") if name in thing.body
    }


@answers("Tags.GetAtScope")
def get_tags(model: Model, ask: Ask) -> Reply:
    return _tagged(_scope(model, ask))


@answers("Tags.UpdateAtScope")
def update_tags(model: Model, ask: Ask) -> Reply:
    """Merge, replace or delete: the one way that leaves other tags alone (documentation of the Tags API)."""
    thing, given = _scope(model, ask), (ask.body.get("properties") or {}).get("tags") or {}
    check_tags(given)
    tags = {
        "Merge": {**thing.tags, **given},
        "Replace": dict(given),
        "Delete": {name: text for name, text in thing.tags.items() if given.get(name) not in {"", text}},
    }[ask.body["operation"]]
    check_tags(tags)
    thing.body["tags"] = tags
    return _tagged(thing)


@answers("Tags.CreateOrUpdateAtScope")
def create_tags(model: Model, ask: Ask) -> Reply:
    thing = _scope(model, ask)
    check_tags(ask.body["properties"].get("tags"))
    thing.body["tags"] = dict(ask.body["properties"].get("tags") or {})
    return _tagged(thing)


@answers("Tags.DeleteAtScope")
def delete_tags(model: Model, ask: Ask) -> Reply:
    _scope(model, ask).body["tags"] = {}
    return Reply(200)


def _scope(model: Model, ask: Ask) -> Thing:
    scope = "/" + ask.where["scope"].strip("/")
    return _group(model, scope) if scope.count("/") == 4 else model.get(scope)


def _tagged(thing: Thing) -> Reply:
    at = f"{thing.id}/providers/Microsoft.Resources/tags/default"
    kind = "Microsoft.Resources/tags"
    return Reply(200, {"id": at, "name": "default", "type": kind, "properties": {"tags": dict(thing.tags)}})


@answers("Providers.Get", "Providers.Register")
def provider(model: Model, ask: Ask) -> Reply:
    name = ask.where["resourceProviderNamespace"]
    if ask.action == "Providers.Register":
        model.providers[name] = "Registered"  # Azure takes minutes, and says Registering meanwhile
    if name not in NAMESPACES and name not in model.providers:
        raise Refusal("InvalidResourceNamespace", f"The resource namespace '{name}' is invalid.", 404)
    return Reply(200, _provider(model, name))


@answers("Providers.List")
def list_providers(model: Model, ask: Ask) -> Reply:
    return pages(model, ask, (_provider(model, name) for name in NAMESPACES))


def _provider(model: Model, name: str) -> dict[str, Any]:
    state = model.providers.get(name, "Registered")
    at = f"/subscriptions/{SUBSCRIPTION}/providers/{name}"
    return {"id": at, "namespace": name, "registrationState": state, "registrationPolicy": "RegistrationRequired"}


@answers("Subscriptions.Get")
def subscription(model: Model, ask: Ask) -> Reply:
    policies = {
        "locationPlacementId": "Public_2014-09-01",
        "quotaId": "PayAsYouGo_2014-09-01",
        "spendingLimit": model.subscription["spendingLimit"],
    }
    at = f"/subscriptions/{SUBSCRIPTION}"
    shown = {"id": at, "subscriptionId": SUBSCRIPTION, "tenantId": TENANT, "displayName": "cloudgpu tests"}
    return Reply(200, {**shown, "state": model.subscription["state"], "subscriptionPolicies": policies})


@answers("Subscriptions.ListLocations")
def locations(model: Model, ask: Ask) -> Reply:
    at = f"/subscriptions/{SUBSCRIPTION}/locations"
    rows = [{"id": f"{at}/{one}", "name": one, "type": "Region", "displayName": one.title()} for one in REGIONS]
    return Reply(200, {"value": rows})


def furnish(model: Model, name: str, region: str = "eastus") -> Thing:
    """Make a resource group as somebody else would."""
    body = {"location": region, "tags": {}, "properties": {"provisioningState": "Succeeded"}}
    return model.put(group_id(name), body)
