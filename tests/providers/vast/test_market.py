"""What of vast.ai's market is shown, at which price, and whose computers those are."""

from __future__ import annotations

import pytest

from cloudgpu.core.model.offers import Basis, Market, Requirements, TrafficPrices, Trust
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InvalidRequest, NoCapacity, ProviderUnavailable
from cloudgpu.providers.vast.gpus import gpu_name, names_of, type_name
from tests.clouds.rest_faults import FOREVER
from tests.providers.vast.accounts import account, attempt_of, calls, launched, offered


def zones(provider, **more):
    return [item.zone for item in provider.available(Requirements(**{"gpu": "rtx4090", **more})).items]


def test_hosts_that_cannot_be_reached_trusted_or_used_are_not_shown(vast, lab):
    shown = set(zones(lab))
    assert {"m40001", "m40002"} <= shown
    assert not shown & {"m41002", "m41003", "m41004", "m41005", "m41006"}


def test_unverified_hosts_are_shown_where_the_settings_want_them_and_are_anybodys(vast, tmp_path):
    ours = account(vast, tmp_path / "any", unverified=True)
    (item,) = ours.available(Requirements(gpu="rtx4090", zone="m41002", trust=Trust.COMMUNITY)).items
    assert item.trust is Trust.COMMUNITY


def test_a_verified_data_centre_is_one_and_a_verified_home_is_anybodys(vast, lab):
    found = {item.zone: item.trust for item in lab.available(Requirements(gpu="rtx4090")).items}
    assert found["m40001"] is Trust.DATACENTER
    assert found["m41001"] is Trust.COMMUNITY


def test_a_place_is_a_country_and_a_machine(vast, lab):
    assert zones(lab, region="NO") == ["m40002"]
    assert zones(lab, zone="m40001") == ["m40001"]
    assert zones(lab, zone="m99999") == []


@pytest.mark.parametrize("wrong", [{"region": "us-east-1"}, {"region": "no"}, {"zone": "40001"}, {"zone": "m1;2"}])
def test_a_place_that_cannot_be_is_refused_without_a_call(vast, lab, wrong):
    with pytest.raises(InvalidRequest) as refused:
        lab.available(Requirements(**wrong))
    assert refused.value.field in ("--region", "--zone")
    assert not vast.calls


def test_countries_of_the_settings_hold(vast, tmp_path):
    assert zones(account(vast, tmp_path / "a", regions=["NO"])) == ["m40002"]
    assert "m40002" not in zones(account(vast, tmp_path / "b", exclude_regions=["NO"]))


def test_one_search_names_its_limit_the_gpu_and_how_many(vast, lab):
    with calls(vast) as made:
        offered(lab)
    assert made == ["search"]
    body = vast.called("search")[0].body
    assert (body["limit"], body["type"], body["num_gpus"]) == (1000, "ondemand", {"eq": 1})
    assert body["gpu_name"] == {"in": ["RTX 4090", "Tesla RTX 4090"]}


def test_as_many_gpus_are_offered_as_are_wanted(vast, lab):
    found = lab.available(Requirements(gpu="h100", gpu_count=8)).items
    assert [(item.instance_type, item.accelerators[0].count) for item in found] == [("8x-h100", 8)]


def test_a_price_is_that_of_the_gpus_alone_by_the_offer_itself(vast, lab):
    item = offered(lab, region="NO")
    (price,) = lab.prices([item])
    assert (price.per_hour, price.basis) == (Money.usd("0.36"), Basis.QUOTED)
    assert "storage" in price.source


def test_prices_of_offers_that_were_seen_cost_no_call_and_others_one_per_market(vast, lab, tmp_path):
    items = list(lab.available(Requirements(gpu="rtx4090")).items)
    with calls(vast) as made:
        lab.prices(items)
    assert made == []
    with calls(vast) as made:
        found = account(vast, tmp_path / "other").prices(items)
    assert made == ["search"]
    assert all(found)


def test_what_is_not_offered_any_more_has_no_price(vast, lab, tmp_path):
    item = offered(lab, zone="m40001")
    vast.hosts = [host for host in vast.hosts if host.machine_id != 40001]
    assert account(vast, tmp_path / "other").prices([item]) == [None]


def test_a_machine_of_ours_costs_what_its_contract_says_whatever_others_pay_now(vast, lab, tmp_path):
    made = launched(lab)
    other = account(vast, tmp_path / "another-computer")
    next(host for host in vast.hosts if f"m{host.machine_id}" == made.zone).dph_base = 9.0
    other.list()
    with calls(vast) as asked:
        (price,) = other.prices([_item(made)])
    assert asked == []
    assert price.per_hour < Money.usd(1)


def _item(made):
    from cloudgpu.control.pricing.price_history import configuration_of_instance

    return configuration_of_instance(made)


def test_an_offer_that_became_dearer_since_it_was_shown_is_not_resolved(vast, lab):
    item = offered(lab, zone="m40001")
    next(host for host in vast.hosts if host.machine_id == 40001).dph_base = 0.5
    with pytest.raises(NoCapacity) as refused:
        attempt_of(lab, item)
    assert "costs $0.5" in refused.value.message


def test_the_plan_names_traffic_both_ways_the_hosts_end_and_who_can_read(vast, lab):
    from cloudgpu.testing.helpers import make_attempt

    item = offered(lab, zone="m40001")
    found = lab.resolve(make_attempt(item).request, item)
    said = " | ".join(found.remarks)
    assert item.traffic == TrafficPrices(Money.usd("0.004"), Money.usd("0.002"))
    assert "leaves vast.ai at" in said
    assert "can read everything" in said
    (disk,) = found.attached
    assert disk.rate.price == Money.usd("0.2")


def test_a_market_that_answers_nonsense_is_no_empty_one(vast, tmp_path):
    lab = account(vast, tmp_path / "lab", patience=0.1)
    vast.faults.add("search", error="x", status=200, body="<html>", times=FOREVER)
    with pytest.raises(ProviderUnavailable):
        lab.available(Requirements(gpu="rtx4090"))


@pytest.mark.parametrize(
    ("theirs", "memory", "ours"),
    [
        ("RTX 4090", 24564, "RTX4090"),
        ("RTX A6000", 49140, "A6000"),
        ("RTX 6000Ada", 49140, "RTX6000Ada"),
        ("A100 SXM4", 40960, "A100-40GB"),
        ("A100 SXM4", 81920, "A100-80GB"),
        ("A100 PCIE", 81920, "A100-80GB-PCIe"),
        ("H100 SXM", 81559, "H100"),
        ("H100 NVL", 95830, "H100-NVL"),
        ("Tesla V100", 32768, "V100-32GB"),
        ("Tesla V100", 16384, "V100-16GB"),
        ("Tesla T4", 15360, "T4"),
        ("Q RTX 8000", 49152, "QuadroRTX8000"),
        ("Brand New 9", 1024, "BrandNew9"),
    ],
)
def test_gpus_have_the_names_of_the_catalogue(theirs, memory, ours):
    assert gpu_name(theirs, memory) == ours
    assert type_name({"gpu_name": theirs, "gpu_ram": memory, "num_gpus": 2}) == f"2x-{ours.lower()}"


@pytest.mark.parametrize(
    ("wanted", "theirs"),
    [
        ("rtx4090", {"RTX 4090"}),
        ("a100", {"A100 SXM4", "A100 PCIE", "A100X"}),
        ("a100-40gb", {"A100 SXM4", "A100 PCIE", "A100X"}),
        ("h100", {"H100 SXM", "H100 PCIE", "H100 NVL"}),
        ("v100", {"V100", "Tesla V100"}),
        ("nothing-9000", set()),
    ],
)
def test_a_wish_is_asked_for_in_their_names(wanted, theirs):
    assert theirs <= set(names_of(wanted))
    assert bool(theirs) == bool(names_of(wanted))


def test_a_gpu_that_we_do_not_know_is_found_by_its_name(vast, lab):
    vast.hosts[0].gpu_name = "RTX 9999"
    assert zones(lab, gpu="rtx9999", zone="m40001") == ["m40001"]
    assert "gpu_name" not in vast.called("search")[0].body


def test_a_spot_offer_costs_its_bid(vast, lab):
    item = offered(lab, market=Market.SPOT, zone="m40001")
    (price,) = lab.prices([item])
    assert price.per_hour == Money.usd("0.1875")  # 1.25 times the least bid of 0.15


def test_a_contract_costs_its_own_price_though_the_market_was_asked_since(vast, lab, tmp_path):
    made = launched(lab, attempt_of(lab, offered(lab, zone="m40001")))
    next(host for host in vast.hosts if host.machine_id == 40001).dph_base = 0.9
    shown = lab.available(Requirements(gpu="rtx4090", zone="m40001")).items
    with calls(vast) as asked:
        prices = lab.prices([_item(made), *shown])
    assert asked == []
    assert [str(price.per_hour.dollars) for price in prices] == ["0.34", *["0.9"] * len(shown)]
    assert "contract" in prices[0].source
    other = account(vast, tmp_path / "another-computer")
    with calls(vast) as asked:
        assert other.prices([_item(made)])[0].per_hour == Money.usd("0.34")
    assert asked == ["get"]


def test_two_contracts_of_one_host_cost_what_each_was_made_at(vast, lab):
    first = launched(lab, attempt_of(lab, offered(lab, gpu="h100", market=Market.SPOT)))
    host = next(host for host in vast.hosts if f"m{host.machine_id}" == first.zone)
    host.min_bid *= 1.1
    lab.available(Requirements(gpu="h100", market=Market.SPOT))
    second = launched(lab, attempt_of(lab, offered(lab, gpu="h100", market=Market.SPOT, zone=first.zone), key="second"))
    paid = [price.per_hour for price in lab.prices([_item(first), _item(second)])]
    assert paid == [Money.usd(str(vast.contract(one.id).per_hour)) for one in (first, second)]
    assert paid[0] < paid[1]


def test_a_contract_that_is_gone_has_the_price_of_its_hosts_offer(vast, lab, tmp_path):
    made = launched(lab)
    lab.terminate(made.id)
    vast.advance(5)
    other = account(vast, tmp_path / "another-computer")
    assert other.prices([_item(made)])[0].per_hour == lab.prices([offered(lab, zone=made.zone)])[0].per_hour


@pytest.mark.parametrize("body", [{"success": True}, {"offers": None}])
def test_a_search_without_offers_in_its_answer_is_no_empty_market(vast, lab, body):
    vast.faults.add("search", error="x", status=200, body=body)
    with pytest.raises(ProviderUnavailable):
        lab.available(Requirements())


def test_what_is_no_offer_hides_none(vast, lab):
    vast.faults.add("search", error="x", status=200, body={"offers": [None, 5]})
    assert lab.available(Requirements(market=Market.ON_DEMAND)).items == ()
