"""What Azure offers, at what price, and what a plan says of it: restrictions, limits, images, networks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloudgpu.core.model.launch import Network, Setup
from cloudgpu.core.model.offers import Basis, Market, Requirements
from cloudgpu.core.policies.guards import Agent
from cloudgpu.core.values.money import Money
from cloudgpu.errors import AuthFailed, InvalidRequest, NoCapacity, ProviderUnavailable, QuotaExceeded
from tests.providers.azure.attempts import A10, T4, USUAL, attempt_at, calls, offered, provider_of

GRID = "GRID driver"


@pytest.fixture
def provider(azure_arm, tmp_path):
    return provider_of(azure_arm, tmp_path)


def plan(provider, item=None, *, setup=USUAL):
    """Return what a launch would be told."""
    item = item or offered(provider)
    return provider.resolve(attempt_at(provider, item, setup=setup).request, item)


# Stock


def test_what_is_offered_is_one_call_per_region_and_kept_for_some_minutes(azure_arm, tmp_path):
    provider = provider_of(azure_arm, tmp_path, regions=["eastus", "westus2"])
    want = Requirements(gpu="t4")
    with calls(azure_arm) as made:
        found = provider.available(want).items
        again = provider.available(want).items
    assert made == ["ResourceSkus.List"] * 2
    assert found == again
    assert {(one.region, one.zone) for one in found} == {("eastus", "eastus"), ("westus2", "westus2")}
    assert all(one.accelerators[0].name == "T4" and one.stoppable for one in found)
    azure_arm.advance(601)
    with calls(azure_arm) as made:
        provider.available(want)
    assert made == ["ResourceSkus.List"] * 2


def test_a_size_that_is_withheld_in_a_region_is_not_offered_there(azure_arm, tmp_path):
    azure_arm.restrict(T4, "eastus")
    provider = provider_of(azure_arm, tmp_path, regions=["eastus", "westus2"])
    assert {one.region for one in provider.available(Requirements(instance_type=T4)).items} == {"westus2"}
    with pytest.raises(NoCapacity, match="NotAvailableForSubscription"):
        provider.available(Requirements(instance_type=T4, region="eastus"))


def test_a_region_that_does_not_list_a_size_withholds_nothing(azure_arm, tmp_path):
    size, regions = "Standard_NC40ads_H100_v5", ["eastus", "koreacentral", "westus2"]  # not listed in koreacentral
    azure_arm.restrict(size, "eastus")
    azure_arm.restrict(size, "westus2")
    provider = provider_of(azure_arm, tmp_path, regions=regions)
    with pytest.raises(NoCapacity) as refused:
        provider.available(Requirements(instance_type=size))
    assert "in eastus and 1 more region (NotAvailableForSubscription)." in refused.value.message
    assert "The other region of this account does not offer it at all." in refused.value.message


def test_a_zone_is_offered_where_it_is_named_and_not_withheld(azure_arm, provider):
    size = "Standard_NV36ads_A10_v5"
    azure_arm.restrict(size, "eastus", "1")
    assert [one.zone for one in provider.available(Requirements(instance_type=size, zone="eastus-2")).items] == [
        "eastus-2"
    ]
    assert provider.available(Requirements(instance_type=size, zone="eastus-1")).items == ()
    assert [one.zone for one in provider.available(Requirements(instance_type=size)).items] == ["eastus"]
    with pytest.raises(InvalidRequest, match="no zone 'eastus-7'"):
        provider.available(Requirements(instance_type=size, zone="eastus-7"))


def test_a_share_of_a_gpu_is_offered_by_its_name_alone(provider):
    (item,) = provider.available(Requirements(instance_type=A10)).items
    assert item.accelerators[0].share == pytest.approx(1 / 6, abs=0.001)
    assert not any(one.accelerators[0].share < 1 for one in provider.available(Requirements(gpu="a10")).items)


def test_a_size_without_a_gpu_is_offered_where_it_is_named(provider):
    (item,) = provider.available(Requirements(instance_type="Standard_D4s_v5")).items
    assert (item.accelerators, item.vcpus, item.memory_gib) == ((), 4, 16.0)


def test_a_size_that_there_is_not_is_said_with_the_near_one(provider):
    with pytest.raises(InvalidRequest, match="Standard_NC4as_T4_v3") as caught:
        provider.available(Requirements(instance_type="NC4as_T4_v3"))
    assert caught.value.field == "--instance-type"


def test_a_list_of_sizes_that_is_not_answered_is_no_empty_one(azure_arm, provider):
    azure_arm.faults.add("ResourceSkus.List", error="InternalServerError", times=100)
    with pytest.raises(ProviderUnavailable):
        provider.available(Requirements(instance_type=T4))


def test_what_a_stop_erases_is_in_the_offer(provider):
    assert "temporary disk of 64 GB" in offered(provider).stop_effect


# Prices


def test_prices_are_those_of_the_dated_list_and_asked_for_what_it_lacks(azure_arm, tmp_path):
    provider = provider_of(azure_arm, tmp_path, regions=["koreacentral"])
    items = [offered(provider, name, market) for name in (T4, "Standard_NC24ads_A100_v4") for market in Market]
    found = provider.prices(items)
    assert all(price is None or price.basis in (Basis.LISTED, Basis.QUOTED) for price in found)
    azure_arm.faults.add("RetailPrices.List", status=500, error="InternalServerError", times=100)
    assert len(provider.prices(items[:1])) == 1


def test_a_spot_price_of_years_ago_is_asked_anew_and_stands_where_nobody_answers(azure_arm, provider):
    items = [offered(provider, T4, market) for market in Market]
    on_demand, spot = provider.prices(items)
    assert spot.per_hour == Money.usd("0.1052")
    assert spot.as_of > on_demand.as_of
    assert len(azure_arm.called("RetailPrices.List")) == 1
    azure_arm.faults.add("RetailPrices.List", status=400, error="BadRequest", times=100)
    assert provider.prices(items)[1].as_of < on_demand.as_of


def test_a_price_list_that_does_not_answer_is_no_fault_of_an_offer(azure_arm, provider):
    item = offered(provider, "Standard_D4s_v5")
    azure_arm.faults.add("RetailPrices.List", status=400, error="BadRequest", times=100)
    assert provider.prices([item]) == [None]


# Plans


def test_a_plan_names_disk_and_address_as_the_price_list_does(provider):
    found = plan(provider)
    assert [(one.stored_as, one.while_stopped) for one in found.attached] == [
        ("P10 128 GiB", True),
        ("public_ip_standard_static_regional", True),
    ]


def test_without_an_identity_the_plan_says_that_a_shutdown_from_inside_does_not_end_it(azure_arm, tmp_path):
    without = plan(provider_of(azure_arm, tmp_path))
    assert any("does not end what it costs" in one for one in without.remarks)
    assert not any("deallocates it" in one or "renews while" in one for one in without.guards)
    assert without.agent is Agent.TELLS
    role = "/subscriptions/00000000-0000-4000-8000-000000000000/providers/Microsoft.Authorization/roleDefinitions/"
    options = {"machine_role": f"{role}00000000-0000-4000-8000-000000000001", "timers": True}
    having = plan(provider_of(azure_arm, tmp_path, **options))
    assert not any("does not end what it costs" in one for one in having.remarks)
    assert any("deallocates it" in one for one in having.guards)
    assert any("scheduled actions" in one for one in having.guards)


def test_a_login_that_may_not_give_the_role_makes_no_plan_that_counts_on_it(azure_arm, tmp_path):
    """A Contributor may not: the machine would try in vain for half an hour before it shuts itself down."""
    role = "/subscriptions/00000000-0000-4000-8000-000000000000/providers/Microsoft.Authorization/roleDefinitions/"
    provider = provider_of(azure_arm, tmp_path, machine_role=f"{role}00000000-0000-4000-8000-000000000001")
    not_these = ["Microsoft.Authorization/*/Write", "Microsoft.Authorization/*/Delete"]
    azure_arm.model.permissions = [{"actions": ["*"], "notActions": not_these}]
    found = plan(provider)
    assert (found.agent, found.call["role"]) == (Agent.TELLS, False)
    assert any("may not give it the role" in one for one in found.remarks)
    assert not any("renews while" in one for one in found.guards)


def test_a_plan_for_a_share_of_an_a10_says_what_drives_it(provider):
    found = plan(provider, offered(provider, A10))
    assert any(GRID in one and "unverified" in one for one in found.remarks)
    assert found.call["image"]["publisher"] == "Canonical"
    assert plan(provider).call["image"]["offer"] == "ubuntu-hpc"


@pytest.mark.parametrize(("limit", "market"), [("cores", Market.ON_DEMAND), ("lowPriorityCores", Market.SPOT)])
def test_a_limit_without_room_is_found_before_the_launch(azure_arm, provider, limit, market):
    item = offered(provider, market=market)
    azure_arm.quota("eastus", limit, 3)
    with pytest.raises(QuotaExceeded, match=limit) as caught:
        plan(provider, item)
    assert f"--request '{limit}=4'" in caught.value.next
    assert "portal.azure.com" in caught.value.next


def test_a_family_is_found_by_its_name_whatever_its_letters(azure_arm, provider):
    item = offered(provider)
    azure_arm.quota("eastus", "Standard NCASv3_T4 Family", 0)
    with pytest.raises(QuotaExceeded, match="NCASv3_T4"):
        plan(provider, item)


def test_limits_that_cannot_be_read_are_a_remark(azure_arm, provider):
    item = offered(provider)
    azure_arm.faults.deny("Usage.List")
    assert any("could not be read" in one for one in plan(provider, item).remarks)


def test_a_withheld_size_is_no_capacity_when_it_is_made_exact(azure_arm, provider):
    item = offered(provider)
    request = attempt_at(provider, item).request
    azure_arm.restrict(T4, "eastus")
    azure_arm.advance(601)
    with pytest.raises(NoCapacity):
        provider.resolve(request, item)


@pytest.mark.parametrize(
    ("setup", "field"),
    [
        (Setup(image="nobody:has:this"), "--image"),
        (Setup(image="unknown"), "--image"),
        (Setup(image="Canonical:0001-com-ubuntu-server-jammy:22_04-lts"), "--image"),  # of generation 1
        (Setup(disk_gb=99_999), "--disk"),
        (Setup(network=Network(subnet="nonsense")), "--subnet"),
        (Setup(network=Network(security_group="/subscriptions/x")), "--security-group"),
    ],
)
def test_what_cannot_be_is_refused_with_its_option(azure_arm, provider, setup, field):
    item = offered(provider, "Standard_NC24ads_A100_v4")  # boots images of generation 2 alone
    request = replace(attempt_at(provider, item).request, setup=setup)
    with pytest.raises(InvalidRequest) as caught:
        provider.resolve(request, item)
    assert caught.value.field == field


def test_a_denied_list_of_sizes_is_said_as_what_it_is(azure_arm, provider):
    azure_arm.faults.deny("ResourceSkus.List")
    with pytest.raises(AuthFailed, match=r"Microsoft\.Compute/skus/read"):
        provider.available(Requirements(instance_type=T4))
