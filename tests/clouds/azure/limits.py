"""Microsoft.Quota: limits, and requests for higher ones; Microsoft.Consumption: budgets with their mails.

A request is granted when the dwell `quota` is over. That a person may have to look at one is not modelled.
"""

from __future__ import annotations

import copy
import re
from typing import Any

from tests.clouds.azure import skus
from tests.clouds.azure.handlers import answers, pages
from tests.clouds.azure.model import Ask, Model, stamp
from tests.clouds.azure.operations import begin
from tests.clouds.rest import Refusal, Reply

_REGION = re.compile(r"/locations/([^/]+)", re.IGNORECASE)


def _region(ask: Ask) -> str:
    found = _REGION.search(ask.id)
    if found is None or "microsoft.compute" not in ask.id.lower():
        raise Refusal("InvalidResourceScope", f"'{ask.where['scope']}' is no scope of limits.", 400)
    return found[1].lower()


def _limit(model: Model, ask: Ask, name: str) -> dict[str, Any]:
    region = _region(ask)
    value = skus.limit_of(model, region, name)
    facts = {
        "limit": {"limitObjectType": "LimitValue", "value": value, "limitType": "Independent"},
        "unit": "Count",
        "name": {"value": name, "localizedValue": f"{name} vCPUs"},
        "isQuotaApplicable": True,
        "properties": {},
    }
    at = ask.id.rpartition("/providers/Microsoft.Quota/")[0]
    return {
        "id": f"{at}/providers/Microsoft.Quota/quotas/{name}",
        "name": name,
        "type": "Microsoft.Quota/Quotas",
        "properties": facts,
    }


@answers("Quota.Get")
def get_quota(model: Model, ask: Ask) -> Reply:
    return Reply(200, _limit(model, ask, _known(ask)))


def _known(ask: Ask) -> str:
    name = ask.where["resourceName"]
    families = {size.family for size in skus.sizes().values()} | {"cores", "lowPriorityCores", "virtualMachines"}
    found = next((one for one in families if one.lower() == name.lower()), None)
    if found is None:
        raise Refusal("InvalidResourceName", f"The resource name '{name}' is not valid.", 400)
    return found


@answers("Quota.List")
def list_quotas(model: Model, ask: Ask) -> Reply:
    families = sorted({size.family for size in skus.sizes().values()} | {"cores", "lowPriorityCores"})
    return pages(model, ask, (_limit(model, ask, one) for one in families))


@answers("Usages.Get")
def get_usage(model: Model, ask: Ask) -> Reply:
    return Reply(200, _used(model, ask, _known(ask)))


@answers("Usages.List")
def list_usages(model: Model, ask: Ask) -> Reply:
    families = sorted({size.family for size in skus.sizes().values()} | {"cores", "lowPriorityCores"})
    return pages(model, ask, (_used(model, ask, one) for one in families))


def _used(model: Model, ask: Ask, name: str) -> dict[str, Any]:
    named = {"value": name, "localizedValue": f"{name} vCPUs"}
    facts = {"usages": {"value": skus.usage(model, _region(ask), name)}, "unit": "Count", "name": named}
    return {"id": ask.id, "name": name, "type": "Microsoft.Quota/Usages", "properties": facts}


@answers("Quota.CreateOrUpdate", "Quota.Update")
def raise_quota(model: Model, ask: Ask) -> Reply:
    name, region = _known(ask), _region(ask)
    value = (ask.body["properties"].get("limit") or {}).get("value")
    if value is None:
        raise Refusal("InvalidRequestContent", "The limit is missing.")
    made = {
        "id": f"{ask.id.rpartition('/quotas/')[0]}/quotaRequests/{model.uuid('quota')}",
        "type": "Microsoft.Quota/quotaRequests",
        "properties": {
            "provisioningState": "InProgress",
            "requestSubmitTime": stamp(model.now()),
            "value": [{"name": {"value": name}, "limit": {"limitObjectType": "LimitValue", "value": value}}],
        },
    }
    made["name"] = made["id"].rpartition("/")[2]
    model.quota_requests.append(made)

    def grant() -> None:
        model.quotas[region, name] = value
        made["properties"]["provisioningState"] = "Succeeded"

    return begin(model, ask, "quota", grant, body=_limit(model, ask, name))


@answers("QuotaRequestStatus.Get")
def get_request(model: Model, ask: Ask) -> Reply:
    for one in model.quota_requests:
        if one["name"] == ask.where["id"]:
            return Reply(200, copy.deepcopy(one))
    raise Refusal("ResourceNotFound", f"The request '{ask.where['id']}' was not found.")


@answers("QuotaRequestStatus.List")
def list_requests(model: Model, ask: Ask) -> Reply:
    return pages(model, ask, model.quota_requests)


@answers("Budgets.CreateOrUpdate")
def put_budget(model: Model, ask: Ask) -> Reply:
    """Make or replace a budget; an eTag that is given has to be the last one."""
    there = model.budgets.get(ask.id.lower())
    if there and ask.body.get("eTag") not in {None, there["eTag"]}:
        raise Refusal("PreconditionFailed", "The eTag is not the latest one.", 412)
    facts = copy.deepcopy(ask.body["properties"])
    start = facts["timePeriod"]["startDate"]
    if not start[8:10] == "01":
        raise Refusal("400", "Start date must be the first of a month.", 400)
    for one in facts.get("notifications", {}).values():
        if not one["contactEmails"] and not one.get("contactRoles") and not one.get("contactGroups"):
            raise Refusal("400", "A notification needs somebody to tell.", 400)
    facts |= {"currentSpend": {"amount": 0, "unit": "USD"}}
    body = {"id": ask.id, "name": ask.where["budgetName"], "type": "Microsoft.Consumption/budgets"}
    made = {**body, "eTag": f'"{model.uuid("etag")}"', "properties": facts}
    model.budgets[ask.id.lower()] = made
    return Reply(200 if there else 201, copy.deepcopy(made))


@answers("Budgets.Get")
def get_budget(model: Model, ask: Ask) -> Reply:
    found = model.budgets.get(ask.id.lower())
    if found is None:
        raise Refusal("404", f"Budget {ask.where['budgetName']} not found.", 404)
    return Reply(200, copy.deepcopy(found))


@answers("Budgets.List")
def list_budgets(model: Model, ask: Ask) -> Reply:
    return pages(model, ask, [one for key, one in model.budgets.items() if key.startswith(ask.id.lower())])


@answers("Budgets.Delete")
def delete_budget(model: Model, ask: Ask) -> Reply:
    if model.budgets.pop(ask.id.lower(), None) is None:
        raise Refusal("404", f"Budget {ask.where['budgetName']} not found.", 404)
    return Reply(200)
