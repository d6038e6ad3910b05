"""Prices: spot asked per zone, on demand by the list, asked for what that lacks, and never made up."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from cloudgpu.catalog import listed_price
from cloudgpu.core.model.offers import Basis, Market, Requirements
from cloudgpu.core.values.money import Money
from cloudgpu.errors import AuthFailed, ProviderUnavailable
from tests.providers.aws.accounts import account, calls, impatient

FEW = ["us-east-1", "us-west-2"]


@pytest.fixture
def provider(aws, tmp_path):
    return account(tmp_path, regions=FEW)


def offers(provider, **want):
    return list(provider.available(Requirements(**want)).items)


def test_spot_prices_are_asked_for_with_one_call_per_region(aws, provider):
    found = offers(provider, gpu="t4", market=Market.SPOT)
    with calls(aws) as sent:
        prices = provider.prices(found)
    assert sorted(sent) == [("DescribeSpotPriceHistory", region) for region in FEW]
    assert len(prices) == len(found) > 10
    assert {price.basis for price in prices} == {Basis.QUOTED}
    assert all(price.source == "EC2 DescribeSpotPriceHistory" for price in prices)


def test_a_spot_price_is_that_of_the_zone_and_of_now(aws, provider):
    aws.model.spot_prices[("p3.2xlarge", "us-east-1b")] = Decimal("0.9180")
    aws.model.spot_prices[("p3.2xlarge", "us-west-2a")] = Decimal("1.2345")
    found = offers(provider, gpu="v100", market=Market.SPOT)
    prices = dict(zip((item.zone for item in found), provider.prices(found), strict=True))
    assert prices["us-east-1b"].per_hour == Money.usd("0.918")
    assert prices["us-west-2a"].per_hour == Money.usd("1.2345")
    assert timedelta(0) < datetime.now(UTC) - prices["us-east-1b"].as_of < timedelta(hours=1)


def test_a_zone_without_a_spot_price_has_none(aws, provider):
    (item, *_) = offers(provider, gpu="v100", market=Market.SPOT)
    assert provider.prices([replace(item, zone="us-east-1f")]) == [None]


def test_the_newest_price_wins_where_several_are_told(aws, provider, monkeypatch):
    aws.model.spot_prices[("p3.2xlarge", "us-east-1b")] = Decimal("0.9")
    (item, *_) = offers(provider, gpu="v100", market=Market.SPOT)
    late = account(provider._aws.home, clock=lambda: datetime.now(UTC) - timedelta(hours=2))  # history, too
    assert late.prices([item])[0].per_hour == Money.usd("0.9")


def test_on_demand_is_the_dated_list_and_costs_no_call(aws, provider):
    found = offers(provider, gpu="v100")
    with calls(aws) as sent:
        prices = provider.prices(found)
    assert sent == []
    assert prices == [listed_price("aws", "p3.2xlarge", item.region, Market.ON_DEMAND) for item in found]
    assert prices[0].basis is Basis.LISTED


def test_what_the_list_lacks_is_asked_of_the_price_list_once_per_region(aws, provider):
    found = offers(provider, instance_type="t3.small")
    assert len(found) > len(FEW)
    with calls(aws) as sent:
        prices = provider.prices(found)
    assert sent == [("GetProducts", "us-east-1")] * len(FEW)
    by_region = {item.region: price.per_hour for item, price in zip(found, prices, strict=True)}
    assert by_region == {"us-east-1": Money.usd("0.0208"), "us-west-2": Money.usd("0.02288")}
    assert {price.basis for price in prices} == {Basis.QUOTED}


def test_what_nobody_prices_has_no_price(aws, provider):
    (item, *_) = offers(provider, instance_type="m5.xlarge", region="us-east-1")
    assert provider.prices([item]) == [None]


def test_both_markets_are_priced_in_order(aws, provider):
    found = offers(provider, gpu="v100", market=Market.SPOT, or_on_demand=True)
    there = provider.prices(found)
    assert provider.prices(found[::-1]) == there[::-1]
    assert provider.prices([]) == []


def test_a_region_that_does_not_tell_its_spot_prices_is_named(aws, provider, monkeypatch):
    impatient(monkeypatch)
    found = offers(provider, gpu="v100", market=Market.SPOT)
    aws.faults.refuse("DescribeSpotPriceHistory", region="us-west-2", times=99)
    with pytest.raises(ProviderUnavailable, match="spot prices of us-west-2 are not known") as silent:
        provider.prices(found)
    assert silent.value.field == "--region"


def test_a_price_that_may_not_be_asked_names_the_permission(aws, provider):
    found = offers(provider, instance_type="t3.small", region="us-east-1")
    aws.faults.deny("GetProducts", service="pricing")
    with pytest.raises(AuthFailed, match="pricing:GetProducts"):
        provider.prices(found)
