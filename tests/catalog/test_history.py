"""How old listed prices are: the embedded ones, and refreshed ones in their place."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cloudgpu import catalog
from cloudgpu.catalog.location import use_directory
from cloudgpu.catalog.price_history import price_ages
from cloudgpu.catalog.refreshed import StoredPart, StoredPrices, write_price_list
from cloudgpu.core.catalog.pricelist import PriceRow, RowKey
from cloudgpu.core.model.offers import Basis, Market
from cloudgpu.core.values.money import Money

NOW = datetime(2026, 11, 22, tzinfo=UTC)


@pytest.fixture
def place(tmp_path):
    use_directory(tmp_path)
    yield tmp_path
    use_directory(None)


def test_ages_are_those_of_the_prices_that_are_offered(place):
    for provider in ("aws", "gcp", "azure"):
        dates = [offer.listed.price.as_of for offer in catalog.offers(provider, with_legacy=True)]
        found = price_ages(provider, NOW)
        assert (found.price_count, found.newest, found.oldest) == (len(dates), max(dates), min(dates))
        assert found.old_count == sum(NOW - one > timedelta(days=180) for one in dates)
        assert found.refreshed_at is None
    assert price_ages("local", NOW) is None


def test_a_refreshed_price_is_counted_once_with_its_own_date(place):
    offer = catalog.offers("aws", market=Market.ON_DEMAND)[0]
    before, asked = price_ages("aws", NOW), NOW - timedelta(hours=3)
    key = RowKey(offer.type.name, offer.listed.region, Market.ON_DEMAND)
    row = PriceRow(key, "usd_per_hour", Money.usd("1"), "a list", asked, Basis.LISTED, "")
    write_price_list(StoredPrices("aws", {offer.listed.region: StoredPart(asked, (row,))}))
    after = price_ages("aws", NOW)
    assert (after.price_count, after.newest, after.refreshed_at) == (before.price_count, asked, asked)


def test_a_refreshed_price_of_storage_stands_in_where_it_is_the_dearest_and_goes_with_its_list(place):
    before, asked = catalog.counted_price("elsewhere", "here", "disk"), NOW - timedelta(hours=3)
    row = PriceRow(RowKey("gp3", "us-east-1", None), "usd_per_gb_month", Money.usd(1000), "a list", asked, Basis.LISTED)
    write_price_list(StoredPrices("aws", {"us-east-1": StoredPart(asked, (row,))}))
    assert catalog.counted_price("elsewhere", "here", "disk").price == Money.usd(1500)
    (place / "aws.json").unlink()
    assert catalog.counted_price("elsewhere", "here", "disk") == before


def test_a_damaged_list_is_no_reason_to_stop(place):
    (place / "aws.json").write_text("{")
    assert price_ages("aws", NOW).refreshed_at is None
