"""The price list of Azure: azure-core's own client over real HTTP, by pages, throttled, broken, misled."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cloudgpu import parallel
from cloudgpu.core.catalog.pricelist import RowKey
from cloudgpu.core.model.offers import Market
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InvalidRequest, ProviderUnavailable, RateLimited
from cloudgpu.providers.azure.market.pricelist import price_list
from cloudgpu.providers.azure.market.retail import RetailPrices
from cloudgpu.providers.base import ProviderSettings
from tests.clouds.azure_prices import REGIONS, AzurePrices, item, machine
from tests.clouds.price_server import Wrong
from tests.listened import in_a_part

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
T4 = RowKey("Standard_NC4as_T4_v3", "eastus", Market.ON_DEMAND)


@pytest.fixture
def azure_prices(monkeypatch):
    server = AzurePrices()
    monkeypatch.setenv("CLOUDGPU_AZURE_ENDPOINT", server.url)
    yield server
    server.end()


@pytest.fixture
def waits(monkeypatch):
    """Let azure-core wait for nothing before it sends a call again; what it wanted to wait."""
    wanted = []
    monkeypatch.setattr("azure.core.pipeline.transport.RequestsTransport.sleep", lambda _self, s: wanted.append(s))
    return wanted


@pytest.fixture
def asked(azure_prices, waits, tmp_path):
    return lambda: price_list(ProviderSettings("azure", {"regions": list(REGIONS)}, tmp_path, lambda: NOW))


def rows(found):
    return {row.key: row for part in found.parts for row in part.rows}


def refused(found):
    return [one for part in found.parts for one in part.refused]


def test_every_region_is_a_part_asked_to_its_last_page(azure_prices, asked):
    found = asked()
    assert [part.scope for part in found.parts] == sorted(REGIONS)
    assert not found.unanswered
    assert not refused(found)
    assert len(rows(found)) == 3 * 8
    per_region = 2 + 2 + 1 + 1  # pages of four: six machines' items, five of storage, an address, three of traffic
    assert len(azure_prices.asked) == 3 * per_region


def test_spot_windows_low_priority_and_other_types_are_told_apart(asked):
    found = rows(asked())
    assert found[T4].price == Money.usd("0.526")
    assert found[RowKey("Standard_NC4as_T4_v3", "eastus", Market.SPOT)].price == Money.usd("0.1052")
    assert found[RowKey("Standard_NC24ads_A100_v4", "eastus", Market.ON_DEMAND)].price == Money.usd("3.673")
    assert (found[T4].source, found[T4].as_of) == ("Azure Retail Prices API", NOW)


def test_disks_snapshots_addresses_and_traffic_are_named_as_the_catalogue_names_them(asked):
    found = {key.item: (row.unit, row.price) for key, row in rows(asked()).items() if key.market is None}
    assert found == {
        "P10 128 GiB": ("usd_per_disk_month", Money.usd("19.71")),
        "E10 128 GiB": ("usd_per_disk_month", Money.usd("9.6")),
        "snapshot": ("usd_per_gb_month", Money.usd("0.05")),
        "public_ip_standard_static_regional": ("usd_per_hour", Money.usd("0.005")),
        "egress_internet": ("usd_per_gb", Money.usd("0.087")),  # the first step that is not free
    }


def test_what_is_free_before_a_price_is_noted(asked):
    found = {key.item: row.note for key, row in rows(asked()).items()}
    assert found["egress_internet"] == "first 100 GB a month free"
    assert found["snapshot"] == ""


def test_of_several_dates_the_latest_holds(azure_prices, asked):
    azure_prices.items.append(machine("Standard_NC4as_T4_v3", 0.6, "eastus", effectiveStartDate="2026-10-01T00:00:00Z"))
    assert rows(asked())[T4].price == Money.usd("0.6")


def test_a_price_that_is_announced_does_not_hold_yet(azure_prices, asked):
    """That the API can list a price before it holds is our belief: its page says nothing of dates ahead."""
    azure_prices.items += [
        machine("Standard_NC4as_T4_v3", 0.6, "eastus", effectiveStartDate="2026-11-21T09:30:00Z"),
        machine("Standard_NC4as_T4_v3", 0.4, "eastus", effectiveStartDate="2026-11-21T09:30:01Z"),
    ]
    found = asked()
    assert rows(found)[T4].price == Money.usd("0.6")
    assert not refused(found)


def test_by_a_clock_that_is_behind_all_dates_the_earliest_price_holds(azure_prices, asked):
    azure_prices.items += [
        machine("Standard_NC96ads_H100_v6", 9, "eastus", effectiveStartDate="2026-12-01"),
        machine("Standard_NC96ads_H100_v6", 7, "eastus", effectiveStartDate="2026-12-02"),
    ]
    found = rows(asked())[RowKey("Standard_NC96ads_H100_v6", "eastus", Market.ON_DEMAND)]
    assert found.price == Money.usd("9")


def test_two_prices_of_one_date_are_none(azure_prices, asked):
    azure_prices.items.append(machine("Standard_NC4as_T4_v3", 0.9, "eastus"))
    found = asked()
    assert T4 not in rows(found)
    assert "two prices, 0.526 and 0.9" in refused(found)[0].why


def test_a_throttled_call_is_sent_again_after_the_wait_that_azure_names(azure_prices, asked, waits):
    azure_prices.wrong.append(Wrong(429, {"Retry-After": "3"}, only="koreacentral", times=2))
    assert len(asked().parts) == 3
    assert waits == [3, 3]


@pytest.mark.parametrize(
    "wrong",
    [
        Wrong(500, times=99),
        Wrong(429, times=99),
        Wrong(body=b'{"Items": [{"retailPrice": 1, "curr', times=99),
        Wrong(body=b'{"Items": null}', times=99),
        Wrong(body=b'{"items": []}', times=99),
        Wrong(body=b"[]", times=99),
        Wrong(302, {"Location": "http://127.0.0.1:1/api/retail/prices"}, times=99),
        Wrong(500, times=99, after=1),
    ],
    ids=["500", "429", "truncated", "no items", "other field", "a list", "redirected", "later page"],
)
def test_a_region_that_does_not_answer_whole_is_named_and_the_others_are_taken(azure_prices, asked, wrong):
    wrong.only = "eastus"
    azure_prices.wrong.append(wrong)
    found = asked()
    assert [gap.scope for gap in found.unanswered] == ["eastus"]
    assert [part.scope for part in found.parts] == ["koreacentral", "westeurope"]


def test_a_page_that_is_cut_is_asked_for_again(azure_prices, asked):
    azure_prices.wrong.append(Wrong(cut=True, times=1))
    assert len(asked().parts) == 3


def test_without_any_answer_it_is_an_error(azure_prices, asked):
    azure_prices.wrong.append(Wrong(500, times=999))
    with pytest.raises(ProviderUnavailable, match="500"):
        asked()
    azure_prices.wrong[:] = [Wrong(429, times=999)]
    with pytest.raises(RateLimited):
        asked()


@pytest.mark.parametrize(
    ("link", "says"),
    [
        (lambda link: link.replace("127.0.0.1", "127.0.0.2"), "another server"),
        (lambda _: "https://prices.example.org/api/retail/prices?$skip=4", "another server"),
        (lambda link: link.replace("/api/retail/", "/other/"), "another server"),
        (lambda link: link.replace("http:", "https:"), "another server"),
        (lambda _: "file:///etc/hosts", "another server"),
        (lambda _: 7, "another server"),
        (lambda link: link.partition("&$skip")[0], "no end"),
    ],
    ids=["host", "name", "path", "scheme", "file", "no text", "itself"],
)
def test_a_link_elsewhere_or_to_itself_is_not_followed(azure_prices, asked, link, says):
    azure_prices.next_link = link
    with pytest.raises(ProviderUnavailable, match=says):
        asked()
    assert len(azure_prices.asked) <= 3 * 3


@pytest.mark.parametrize(
    ("usd", "why"),
    [
        (0, "not a price above 0"),
        (-1.5, "not a price above 0"),
        (float("nan"), "not a price above 0"),
        ("free", "'free'"),
    ],
)
def test_what_is_no_price_is_refused_by_name(azure_prices, asked, usd, why):
    azure_prices.items = [one for one in azure_prices.items if one["armSkuName"] != "Standard_NC24ads_A100_v4"]
    azure_prices.items.append(machine("Standard_NC24ads_A100_v4", usd, "eastus"))
    (one,) = refused(asked())
    assert "NC24ads A100 v4" in one.name
    assert why in one.why


def test_another_currency_and_a_missing_field_are_refused(azure_prices, asked):
    azure_prices.items.append(machine("Standard_ND96asr_v4", 31000, "eastus", currencyCode="KRW"))
    lame = machine("Standard_NV6", 1.14, "eastus")
    del lame["unitOfMeasure"]
    azure_prices.items.append(lame)
    assert sorted(one.why for one in refused(asked())) == ["has no unitOfMeasure", "is in KRW, not in USD"]


def test_a_disk_of_another_redundancy_is_another_thing(azure_prices, asked):
    azure_prices.items.append(
        item("Storage", "Premium SSD Managed Disks", "P6 LRS", "P6 LRS Disk", 9.28, "1/Month", "eastus")
    )
    assert RowKey("P6 64 GiB", "eastus", None) in rows(asked())


def test_an_endpoint_that_is_none_is_said(asked, monkeypatch):
    monkeypatch.setenv("CLOUDGPU_AZURE_ENDPOINT", "prices.azure.com")
    with pytest.raises(InvalidRequest, match="CLOUDGPU_AZURE_ENDPOINT"):
        asked()


@pytest.mark.parametrize("regions", ["eastus", [1], ["a' or 'b"]])
def test_regions_that_are_none_are_said(azure_prices, tmp_path, regions):
    with pytest.raises(InvalidRequest, match="regions"):
        price_list(ProviderSettings("azure", {"regions": regions}, tmp_path, lambda: NOW))
    assert not azure_prices.asked


def test_without_a_list_all_regions_of_the_catalogue_are_asked(azure_prices, waits, tmp_path):
    found = price_list(ProviderSettings("azure", {}, tmp_path, lambda: NOW))
    silent = {gap.scope for gap in found.unanswered}
    assert not silent
    assert len({query["$filter"].split("armRegionName eq ")[1].split(" ")[0] for query in azure_prices.asked}) == 17


def test_each_page_of_prices_is_an_answer_to_whoever_listens(azure_prices):
    def pages():
        part = parallel._THIS_THREAD.part
        begun = part._last_beat
        next(RetailPrices().items("serviceName eq 'Virtual Machines'"))
        return part._last_beat > begun

    assert in_a_part(pages)
