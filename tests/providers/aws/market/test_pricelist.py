"""The price list of AWS: real HTTP against our model of it, paged, throttled, broken; parts are whole or missing."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from cloudgpu.catalog.read import embedded_prices
from cloudgpu.core.catalog.pricelist import RowKey
from cloudgpu.core.model.offers import Market
from cloudgpu.core.values.money import Money
from cloudgpu.errors import AuthFailed, ProviderUnavailable
from cloudgpu.providers.aws.market.pricelist import price_list
from cloudgpu.providers.base import ProviderSettings
from tests.providers.aws.accounts import calls, impatient

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
ON_DEMAND = RowKey("g5.xlarge", "us-east-1", Market.ON_DEMAND)


@pytest.fixture
def asked(aws, tmp_path):
    def ask(*regions):
        options = {"regions": list(regions or ("us-east-1",))}
        return price_list(ProviderSettings("lab", options, tmp_path, lambda: datetime.now(UTC)))

    return ask


def rows(found):
    return {row.key: row for part in found.parts for row in part.rows}


def test_machines_disks_snapshots_addresses_and_traffic_are_asked_page_by_page(aws, asked):
    aws.model.list_prices["g5.xlarge", "us-east-1"] = "1.0210000000"
    with calls(aws) as sent:
        found = rows(asked())
    assert found[ON_DEMAND].price == Money.usd("1.021")
    assert found[ON_DEMAND].source == "AWS Price List (GetProducts)"
    usd = {key.item: (row.unit, row.price) for key, row in found.items() if key.market is None}
    assert usd["gp3"] == ("usd_per_gb_month", Money.usd("0.08"))
    assert usd["ebs_snapshot"] == ("usd_per_gb_month", Money.usd("0.05"))
    assert usd["public_ipv4"] == ("usd_per_hour", Money.usd("0.005"))
    assert usd["egress_internet_first_10TB"] == ("usd_per_gb", Money.usd("0.09"))  # not the step that is free
    (traffic,) = (row for key, row in found.items() if key.item.startswith("egress"))
    assert traffic.note == "first 100 GB a month free"
    assert not {"nat", "block", "archive", "iops"} & {key.item for key in found}
    listed = sum(key.market is Market.ON_DEMAND for key in found)
    assert listed > 40
    products = [call for call in sent if call[0] == "GetProducts"]
    assert len(products) == -(-listed // 20) + 4  # the pages of machines, one page of each other question


def test_every_embedded_price_of_a_region_is_renewed(asked):
    found = rows(asked())
    for key, row in found.items():
        if key.market is Market.ON_DEMAND:
            (known,) = (
                one for one in embedded_prices("aws", key.item) if (one.region, one.market) == (key.region, key.market)
            )
            assert known.price.per_hour == row.price


def test_spot_is_that_of_the_cheapest_zone_and_says_which(aws, asked):
    aws.model.spot_prices["g5.xlarge", "us-east-1"] = Decimal("0.41")
    aws.model.spot_prices["g5.xlarge", "us-east-1b"] = Decimal("0.39")
    row = rows(asked())[RowKey("g5.xlarge", "us-east-1", Market.SPOT)]
    assert row.price == Money.usd("0.39")
    assert row.source == "EC2 DescribeSpotPriceHistory"
    assert "us-east-1b" in row.note


def test_a_throttled_call_is_sent_again(aws, asked, monkeypatch):
    waits = impatient(monkeypatch)
    fault = aws.faults.add("GetProducts", error="ThrottlingException", message="Rate exceeded", status=400, times=2)
    assert ON_DEMAND in rows(asked())
    assert fault.hits == 2
    assert len(waits) == 2


def test_a_silent_part_is_named_and_the_others_are_whole(aws, asked):
    aws.faults.deny("DescribeSpotPriceHistory")
    found = asked("us-east-1", "us-west-2")
    assert {part.scope for part in found.parts} == {"us-east-1 list", "us-west-2 list"}
    assert {gap.scope for gap in found.unanswered} == {"us-east-1 spot", "us-west-2 spot"}
    assert "ec2:DescribeSpotPriceHistory" in found.unanswered[0].why


@pytest.mark.soak
def test_a_list_that_breaks_off_at_a_later_page_is_no_part(aws, asked, monkeypatch):
    impatient(monkeypatch)
    whole = asked()
    aws.model.list_products.append('{"product": {"sku": "CUT", "attri')
    found = asked()
    assert [part.scope for part in found.parts] == ["us-east-1 spot"]
    assert "cannot be read" in found.unanswered[0].why
    assert len(whole.parts) == 2


@pytest.mark.soak
def test_without_any_answer_it_is_an_error(aws, asked, monkeypatch):
    impatient(monkeypatch)
    aws.faults.deny("GetProducts", service="pricing")
    aws.faults.deny("DescribeSpotPriceHistory")
    with pytest.raises(AuthFailed):
        asked()
    aws.faults.clear()
    aws.faults.offline("us-east-1", status=503)
    with pytest.raises(ProviderUnavailable):
        asked()


@pytest.mark.parametrize(
    ("price", "why"),
    [
        ("0.0000000000", "not a price above 0"),
        ("-1.2", "not a price above 0"),
        ("NaN", "not a price above 0"),
        ("free", "'free', which is not a price"),
        ({"CNY": "7.4"}, "in CNY, not in USD"),
        ({}, "in no currency"),
        ({"USD": None}, "not a price"),
        ("1e30", "not a price above 0"),
    ],
)
def test_what_is_no_price_is_refused_by_name(aws, asked, price, why):
    aws.model.list_prices["g5.xlarge", "us-east-1"] = price
    (part,) = (part for part in asked().parts if part.scope == "us-east-1 list")
    assert ON_DEMAND not in {row.key for row in part.rows}
    (refused,) = part.refused
    assert refused.name == "SKU-g5.xlarge (g5.xlarge)"
    assert why in refused.why


def test_two_prices_for_one_thing_are_both_refused(aws, asked):
    rate = {"unit": "Hrs", "pricePerUnit": {"USD": "9"}, "beginRange": "0"}
    twin = {"sku": "TWIN", "attributes": {"instanceType": "g5.xlarge", "usagetype": ""}}
    terms = {"OnDemand": {"a": {"priceDimensions": {"b": rate}}}}
    aws.model.list_products.append(json.dumps({"product": twin, "terms": terms}))
    (part,) = (part for part in asked().parts if part.scope == "us-east-1 list")
    assert ON_DEMAND not in {row.key for row in part.rows}
    assert [(one.name, "two prices" in one.why) for one in part.refused] == [("TWIN (g5.xlarge)", True)]
