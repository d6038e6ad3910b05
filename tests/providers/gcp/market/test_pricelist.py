"""The price list of Google Cloud: Google's own client over real HTTP; machines are added up from their parts."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

import pytest
from google.cloud.billing_v1.types import ListSkusResponse
from google.protobuf import json_format

from cloudgpu.core.catalog.pricelist import RowKey
from cloudgpu.core.model.offers import Basis, Market
from cloudgpu.core.values.money import Money
from cloudgpu.errors import AuthFailed, InvalidRequest, ProviderUnavailable, RateLimited
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.gcp.market.pricelist import price_list
from tests.clouds.gcp_prices import GcpPrices, sku
from tests.clouds.price_server import Wrong

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
A2 = RowKey("a2-highgpu-1g", "us-central1", Market.ON_DEMAND)


@pytest.fixture
def google(monkeypatch):
    server = GcpPrices()
    monkeypatch.setenv("CLOUDGPU_GCP_ENDPOINT", server.url)
    yield server
    server.end()


@pytest.fixture
def waits():
    return []


@pytest.fixture
def asked(google, waits, tmp_path):
    return lambda: price_list(ProviderSettings("gcp", {}, tmp_path, lambda: NOW, waits.append))


def rows(found):
    (part,) = found.parts
    return {row.key: row for row in part.rows}


def test_the_model_answers_in_google_s_own_format(google):
    page = google.page("/v1/services/6F81-5844-456A/skus", {}, {})
    json_format.ParseDict(page, ListSkusResponse.pb(ListSkusResponse()))  # an unknown field is an error


def test_a_machine_is_its_parts_added_up_and_says_so(google, asked):
    row = rows(asked())[A2]
    total = 12 * Fraction("0.031611") + 85 * Fraction("0.004237") + Fraction("2.933908")
    assert row.price == Money(round(total * 10**9))
    assert (row.basis, row.as_of) == (Basis.DERIVED, NOW)
    assert row.note == "added up: 12 a2 Core, 85 a2 Ram, 1 gpu A100-40GB"
    assert len(google.asked) == -(-len(google.skus) // google.size)


def test_the_sum_is_near_the_price_that_google_shows_for_the_machine(asked):
    found = rows(asked())
    shown = {"a2-highgpu-1g": "3.67339", "a2-ultragpu-1g": "5.0688"}  # us-central1, 2026-08-03, from the facts
    for name, usd in shown.items():
        row = found[RowKey(name, "us-central1", Market.ON_DEMAND)]
        assert abs(row.price.nanos / Money.usd(usd).nanos - 1) < 0.01


def test_local_ssd_that_comes_with_a_machine_is_counted(asked):
    row = rows(asked())[RowKey("a2-ultragpu-1g", "us-central1", Market.ON_DEMAND)]
    assert "local-ssd" in row.note
    parts = 12 * Fraction("0.031611") + 170 * Fraction("0.004237") + Fraction("3.92808") + 375 * Fraction("0.08") / 730
    assert row.price == Money(round(parts * 10**9))


def test_a_gpu_that_is_sold_apart_comes_with_its_host_on_each_market(asked):
    found = rows(asked())
    spot = found[RowKey("n1-standard-4+t4:2", "us-east1", Market.SPOT)]
    host = 4 * Fraction("0.006655") + 15 * Fraction("0.000892")
    assert spot.price == Money(round((host + 2 * Fraction("0.119")) * 10**9))
    assert RowKey("n1-standard-4+t4:2", "asia-east1", Market.SPOT) not in found


def test_a_machine_of_which_a_part_has_no_price_has_none(google, asked):
    google.skus = [one for one in google.skus if "L4" not in one["description"]]
    assert not [key for key in rows(asked()) if key.item.startswith("g2-")]


def test_disks_and_addresses_are_named_as_the_catalogue_names_them(asked):
    found = {(key.item, key.region): row for key, row in rows(asked()).items() if key.market is None}
    assert found["pd-standard", "us-central1"].price == Money.usd("0.04")  # not the step that is free
    assert found["pd-standard", "us-central1"].note == "first 30 GiBy a month free"
    assert found["pd-balanced", "asia-east1"].unit == "usd_per_gib_month"
    assert found["external_ip_on_spot_vm", "*"].price == Money.usd("0.0025")
    assert found["snapshot(standard)", "us-west1"].price == Money.usd("0.05")


def test_commitments_and_other_tenancies_are_no_list_price(google, asked):
    before = rows(asked())
    google.skus = [one for one in google.skus if "Commitment" not in one["description"]]
    assert rows(asked()) == before


def test_a_busy_google_is_asked_again_when_it_says(google, asked, waits):
    google.wrong.append(Wrong(429, {"Retry-After": "7"}, times=2))
    assert A2 in rows(asked())
    assert waits == [7.0, 7.0]


def test_a_failing_google_is_asked_again_a_few_times(google, asked, waits):
    google.wrong.append(Wrong(500, times=2, after=1))
    assert A2 in rows(asked())
    assert waits == [2.0, 4.0]
    google.wrong.append(Wrong(500, times=99))
    with pytest.raises(ProviderUnavailable, match="500"):
        asked()


def test_google_stays_busy(google, asked):
    google.wrong.append(Wrong(429, times=99))
    with pytest.raises(RateLimited):
        asked()


@pytest.mark.parametrize(
    "wrong",
    [
        Wrong(body=b'{"skus": [{"skuId": "1", "descr'),
        Wrong(cut=True, after=1),
        Wrong(body=b'{"skus": [{"skuId": {"a": 1}}]}'),
        Wrong(body=b"<html>hello</html>"),
        Wrong(404),
    ],
    ids=["truncated", "cut on the second page", "wrong field", "html", "not found"],
)
def test_an_answer_that_is_none_is_no_list(google, asked, wrong):
    wrong.times = 9
    google.wrong.append(wrong)
    with pytest.raises(ProviderUnavailable, match="Google's price list"):
        asked()


def test_a_list_without_an_end_is_no_list(google, asked):
    google.repeats = True
    with pytest.raises(ProviderUnavailable, match="no end"):
        asked()
    assert len(google.asked) < 5


def test_refused_credentials_are_named(google, asked):
    google.wrong.append(Wrong(403, times=9))
    with pytest.raises(AuthFailed, match="403"):
        asked()


@pytest.mark.parametrize(
    ("usd", "currency", "why"),
    [("0", "USD", "not a price above 0"), ("-0.5", "USD", "not a price above 0"), ("4.1", "KRW", "in KRW")],
)
def test_a_part_that_is_no_price_is_refused_and_what_needs_it_has_none(google, asked, usd, currency, why):
    google.skus = [one for one in google.skus if one["description"] != "Nvidia Tesla A100 GPU running in Americas"]
    google.skus.append(sku("Nvidia Tesla A100 GPU running in Americas", usd, currency=currency))
    found = asked()
    (refused,) = found.parts[0].refused
    assert "Nvidia Tesla A100 GPU" in refused.name
    assert why in refused.why
    assert A2 not in rows(found)
    assert RowKey("a2-ultragpu-1g", "us-central1", Market.ON_DEMAND) in rows(found)


def test_an_endpoint_that_is_no_address_is_said(google, asked, monkeypatch):
    monkeypatch.setenv("CLOUDGPU_GCP_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises((ProviderUnavailable, InvalidRequest)):
        asked()
