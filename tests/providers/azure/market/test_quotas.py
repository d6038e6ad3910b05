"""Limits at Azure: by family for machines on demand, one for all on spot; asked for at its own service of quotas."""

from __future__ import annotations

import pytest

from cloudgpu.core.model.offers import Market
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.azure.market import quotas
from tests.providers.azure.launched import SPOT, launch


def test_limits_are_told_with_what_is_used_and_only_those_of_gpus(account, azure_arm, sdk):
    azure_arm.quota("eastus", "lowPriorityCores", 48)
    launch(sdk, **SPOT)
    found = {one.code: one for one in quotas.quotas(account(), "eastus")}
    assert (found["lowPriorityCores"].limit, found["lowPriorityCores"].used) == (48, 4)
    assert found["lowPriorityCores"].market is Market.SPOT
    family = found["Standard NCASv3_T4 Family"]
    assert (family.market, family.used, family.unit) == (Market.ON_DEMAND, 0, "vCPU")
    assert not [code for code in found if code.lower().startswith(("standardd", "basic", "virtual"))]


def test_a_higher_limit_is_asked_for_in_the_words_of_its_kind(account, azure_arm):
    azure = account()
    asked = quotas.request(azure, "eastus", "Standard NCASv3_T4 Family", 5000)
    assert asked
    call = azure_arm.calls[-1]
    assert call.action == "Quota.CreateOrUpdate"
    assert call.body["properties"]["limit"] == {"limitObjectType": "LimitValue", "value": 5000}
    assert call.body["properties"]["resourceType"] == "dedicated"
    quotas.request(azure, "eastus", "lowPriorityCores", 5000)
    assert azure_arm.calls[-1].body["properties"]["resourceType"] == "lowPriority"


@pytest.mark.parametrize(
    ("code", "limit", "says"),
    [
        ("Standard NCASv3_T4 Famly", 500, "did you mean 'Standard NCASv3_T4 Family'"),
        ("Standard NCASv3_T4 Family", 0, "already"),
    ],
)
def test_a_limit_that_is_none_or_no_higher_asks_for_nothing(account, azure_arm, code, limit, says):
    with pytest.raises(InvalidRequest, match=says):
        quotas.request(account(), "eastus", code, limit)
    assert [call.action for call in azure_arm.calls if call.action.startswith("Quota.")] == []


def test_a_region_that_the_settings_leave_out_is_refused_unasked(account, azure_arm):
    with pytest.raises(InvalidRequest, match="does not use westus2"):
        quotas.quotas(account(regions=["eastus"]), "westus2")
    assert azure_arm.calls == []


def test_the_page_of_quotas_is_the_portals(account):
    assert quotas.quota_page(account(), "eastus", "cores").startswith("https://portal.azure.com/")
