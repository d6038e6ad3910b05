"""`export --format focus` against the specification's text: columns, nulls, numbers, times, units, sums."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from cloudgpu.control.cost.exports import ExportFormat, ExportPeriod, export
from cloudgpu.core.billing.charges import money, period_charges
from tests.views.ledger_of_all import NOW, filled, negotiated

# FOCUS_Spec, tag v1.0, specification/columns: those that must not be null, and those that must not for use.
NEVER_NULL = (
    "BilledCost BillingAccountId BillingAccountName BillingCurrency BillingPeriodEnd BillingPeriodStart ChargeCategory "
    "ChargeDescription ChargeFrequency ChargePeriodEnd ChargePeriodStart ConsumedQuantity ConsumedUnit ContractedCost "
    "EffectiveCost InvoiceIssuerName ListCost PricingCategory PricingQuantity PricingUnit ProviderName PublisherName "
    "RegionId RegionName ServiceCategory ServiceName SkuId SkuPriceId Tags"
).split()
ALWAYS_NULL = (
    "ChargeClass CommitmentDiscountCategory CommitmentDiscountId CommitmentDiscountName CommitmentDiscountStatus "
    "CommitmentDiscountType SubAccountId SubAccountName"
).split()
DECIMALS = (
    "BilledCost EffectiveCost ListCost ContractedCost ListUnitPrice ContractedUnitPrice ConsumedQuantity "
    "PricingQuantity x_LowCost x_HighCost x_OnDemandCost"
).split()
UNITS = {"Hours", "GB", "GiB", "GB-Months", "GB-Hours", "Unit-Months"}
WHOLE = ExportPeriod(None, None, NOW)


def exported(session, span=WHOLE, form=ExportFormat.FOCUS):
    stream = io.StringIO()
    done = export(session, form, span, None, stream)
    return stream.getvalue(), done


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    return filled(tmp_path_factory.mktemp("all") / "home")


@pytest.fixture(scope="module")
def rows(session):
    return rows_of(exported(session)[0])


def truth(session, span=WHOLE):
    ledger = session.ledger
    bill = period_charges(
        ledger.billable_machines(), ledger.ended_usages(), span.now, since=span.since, until=span.until
    )
    return money(sum(one.charge.amount for one in bill)).dollars


@pytest.mark.parametrize("column", NEVER_NULL)
def test_what_must_not_be_null_never_is(rows, column):
    assert all(row[column] for row in rows)


def test_what_does_not_apply_is_null_and_no_placeholder(rows):
    assert {row[column] for row in rows for column in ALWAYS_NULL} == {""}


def test_numbers_have_a_point_and_neither_sign_nor_exponent(rows):
    found = {row[column] for row in rows for column in DECIMALS if row[column]}
    assert all(re.fullmatch(r"\d+\.\d+", value) for value in found)


def test_times_are_utc_to_the_second_and_a_charge_lies_in_its_month(rows):
    for row in rows:
        times = [row[name] for name in ("ChargePeriodStart", "ChargePeriodEnd")]
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", moment) for moment in times)
        assert row["BillingPeriodStart"] <= times[0] < times[1] <= row["BillingPeriodEnd"]
        assert row["BillingPeriodStart"][8:] == row["BillingPeriodEnd"][8:] == "01T00:00:00Z"


def test_the_billed_costs_add_up_to_the_ledger(rows, session):
    assert sum(Decimal(row["BilledCost"]) for row in rows) == truth(session)
    assert len(rows) > 20


@pytest.mark.parametrize("cut", ["2026-11-30T17:23:45.123456+00:00", "2026-12-01T00:00:00+00:00"])
def test_two_periods_add_up_to_both(session, cut):
    at = datetime.fromisoformat(cut)
    halves = [ExportPeriod(None, at, NOW), ExportPeriod(at, None, NOW)]
    parts = [rows_of(exported(session, half)[0]) for half in halves]
    for half, found in zip(halves, parts, strict=True):
        assert sum(Decimal(row["BilledCost"]) for row in found) == truth(session, half)
    both = sum(Decimal(row["BilledCost"]) for found in parts for row in found)
    assert abs(both - truth(session)) <= Decimal("1e-9")  # each half is rounded once


def test_a_unit_price_times_its_quantity_is_the_cost_to_a_nano_dollar(rows):
    priced = [row for row in rows if row["ListUnitPrice"] and row["PricingUnit"] and row["x_PriceMissing"] == "false"]
    for row in priced:
        for price, cost in (("ListUnitPrice", "ListCost"), ("ContractedUnitPrice", "ContractedCost")):
            off = Decimal(row[price]) * Decimal(row["PricingQuantity"]) - Decimal(row[cost])
            assert abs(off) <= Decimal("1.1e-9"), row


def test_a_sku_price_is_one_price_of_one_sku(rows):
    pairs = {(row["SkuPriceId"], row["SkuId"], row["ListUnitPrice"]) for row in rows}
    assert len({first for first, *_ in pairs}) == len(pairs)


def test_a_negotiated_price_is_beside_the_public_one_and_null_where_nobody_knows_that(tmp_path):
    text, _ = exported(filled(tmp_path / "home", negotiated()))
    names = ("BilledCost", "ListCost", "ContractedUnitPrice", "ListUnitPrice", "PricingQuantity")
    less, fixed = ({name: row[name] for name in (*names, "SkuPriceId")} for row in rows_of(text))
    assert [less[name] for name in names] == ["0.789", "1.052", "0.3945", "0.526", "2.0"]
    assert [fixed[name] for name in names] == ["4.0", "4.0", "2.0", "", "2.0"]  # as the text wants for a null
    assert less["SkuPriceId"].endswith("/g0.large/on_demand@0.526")
    assert fixed["SkuPriceId"].endswith("/g1.large/on_demand")


def test_units_and_categories_are_those_of_the_text(rows):
    assert {row["PricingUnit"] for row in rows} | {row["ConsumedUnit"] for row in rows} <= UNITS
    assert {row["ServiceCategory"] for row in rows} == {"Compute", "Storage", "Networking"}
    assert {row["PricingCategory"] for row in rows if row["ResourceName"] == "otter" and "spot" in row["SkuId"]} == {
        "Dynamic"
    }


def test_a_resource_type_stands_exactly_beside_a_resource_id(rows):
    assert all(bool(row["ResourceId"]) == bool(row["ResourceType"]) for row in rows)
    assert all(row["ResourceId"] != row["ResourceName"] for row in rows if row["ResourceId"])
    assert "i-0123456789abcdef0" in {row["ResourceId"] for row in rows}


def test_tags_are_a_flat_object_with_ours(rows):
    tags = [json.loads(row["Tags"]) for row in rows]
    assert all(isinstance(value, str) for one in tags for value in one.values())
    assert {one["cloudgpu-id"] for one in tags} == {"cg-1", "cg-2", "cg-3", "cg-4", "cg-5", "vol-1"}
    assert {one.get("cloudgpu-owner") for one in tags} == {"ada-example-org", "somebody", "ada"}


def test_a_missing_price_is_marked_and_never_looks_like_a_price_of_nothing(rows, session):
    missing = [row for row in rows if row["x_PriceMissing"] == "true"]
    assert {json.loads(row["Tags"])["cloudgpu-name"] for row in missing} == {"no-price"}
    assert {(row["ListUnitPrice"], row["ContractedUnitPrice"]) for row in missing} == {("", "")}
    assert all(
        row["ChargeDescription"].endswith("no price is known, the cost is missing and not zero") for row in missing
    )
    assert sum(Decimal(row["ConsumedQuantity"]) for row in missing) == 24
    assert exported(session)[1]["unpriced"] == len(missing) == 2


def test_a_free_run_has_hours_and_costs_nothing(rows):
    (free,) = [row for row in rows if row["ResourceId"].endswith("def3")]
    assert (free["BilledCost"], free["PricingQuantity"], free["ConsumedQuantity"]) == ("0.0", "0.0", "0.5")
    assert free["x_PriceMissing"] == "false"
    assert free["x_Reason"].startswith("free: ")


def test_what_is_a_range_is_marked_with_its_ends_and_why(rows):
    for row in rows:
        low, billed_cost, high = (Decimal(row[name]) for name in ("x_LowCost", "BilledCost", "x_HighCost"))
        assert low <= billed_cost <= high
        assert row["x_Estimate"] == "true" or low == high
    (traffic,) = [row for row in rows if row["PricingUnit"].startswith("G") and row["ServiceCategory"] == "Networking"]
    assert (traffic["x_LowCost"], traffic["x_Estimate"]) == ("0.0", "true")
    assert "leaves the region" in traffic["x_Reason"]
    vanished = [row for row in rows if "seoul" in (row["ResourceName"], row["ResourceId"])]
    assert sum(Decimal(row["x_HighCost"]) for row in vanished) > sum(Decimal(row["BilledCost"]) for row in vanished)


def test_unverified_prices_and_what_runs_still_are_estimates(rows):
    korea = [row for row in rows if "korea" in (row["ResourceName"], row["ResourceId"])]
    assert {(row["x_PriceBasis"], row["x_Estimate"]) for row in korea} == {("unverified", "true")}
    assert korea[-1]["x_Reason"] == "it is still billed"
    sure = [row for row in rows if row["x_Estimate"] == "false"]
    assert len(sure) > 3
    assert {row["x_PriceBasis"] for row in sure} == {"listed"}


def test_the_months_days_and_price_changes_cut_a_run(rows):
    run = [row for row in rows if row["ResourceName"] == "otter" and row["PricingUnit"] == "Hours"]
    edges = [row["ChargePeriodStart"] for row in run] + [run[-1]["ChargePeriodEnd"]]
    assert edges == [row["ChargePeriodStart"] for row in run[:1]] + [row["ChargePeriodEnd"] for row in run]
    assert [edge[5:16] for edge in edges] == [
        "11-29T10:00", "11-30T00:00", "11-30T09:30", "12-01T00:00", "12-02T00:00", "12-02T10:00",
    ]  # fmt: skip
    assert [row["BillingPeriodStart"][5:7] for row in run] == ["11", "11", "11", "12", "12"]


def test_csv_is_safe_in_a_spreadsheet_and_focus_is_exact(session):
    plain, _ = exported(session, form=ExportFormat.CSV)
    assert "'=ada@example.org" in {row["owner"] for row in rows_of(plain)}
    document = json.loads(exported(session, form=ExportFormat.JSON)[0])
    assert {one["owner"] for one in document["charges"]} >= {"=ada@example.org"}
    assert "=ada" not in exported(session)[0]


def test_plain_forms_have_the_same_lines_and_sum(session):
    for form in (ExportFormat.CSV, ExportFormat.JSON):
        text, done = exported(session, form=form)
        found = rows_of(text) if form is ExportFormat.CSV else json.loads(text)["charges"]
        assert len(found) == done["rows"]
        assert sum(Decimal(row["usd"] or "0") for row in found) == truth(session) == Decimal(done["usd"])
        assert [bool(row["usd"]) for row in found].count(False) == done["unpriced"] == 2


def test_an_empty_ledger_writes_a_header_alone(tmp_path):
    text, done = exported(filled(tmp_path / "home", drafts=[]))
    assert (text.count("\n"), done["rows"], done["usd"]) == (1, 0, "0")


def test_nothing_is_written_into_the_ledger(session):
    before = session.ledger.head()
    exported(session, ExportPeriod(datetime(2026, 12, 1, tzinfo=UTC), None, NOW))
    assert session.ledger.head() == before
