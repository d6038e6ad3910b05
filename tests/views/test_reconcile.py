"""`cost reconcile`: exports in the shape of three clouds, every reason of a gap, and files that are none."""

from __future__ import annotations

import csv
import gzip
import io
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from cloudgpu.cli.money.reconcile import _write_csv
from cloudgpu.control.cost.exports import ExportFormat, ExportPeriod, export
from cloudgpu.control.cost.reconcile import reconcile
from cloudgpu.core.values.currency import Currency
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.errors import InvalidRequest
from tests.ledger.lines import PRICE
from tests.views.ledger_of_all import NOW, filled, launched, looked

FILES = Path(__file__).parent / "files"
COLUMNS = (
    "BilledCost BillingCurrency ChargeCategory ChargePeriodStart ChargePeriodEnd ProviderName ResourceId Tags "
    "ServiceCategory ChargeDescription PricingQuantity PricingUnit ListCost"
).split()
HALF_DAY = ("2026-12-01T00:00:00Z", "2026-12-01T12:00:00Z")
WHOLE_DAY = {"ChargePeriodStart": "2026-12-01T00:00:00Z", "ChargePeriodEnd": "2026-12-02T00:00:00Z"}


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    return filled(tmp_path_factory.mktemp("everything") / "home")


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """A machine that ran from midnight to noon for 0.526 $/h, as the list has it."""
    aws = {"provider": "aws", "account": "lab", "instance_type": "g4dn.xlarge", "name": "otter"}
    drafts = [
        launched("cg-1", HALF_DAY[0], **aws, price=PRICE),
        looked("cg-1", HALF_DAY[0]),
        looked("cg-1", HALF_DAY[1], "terminated"),
    ]
    return filled(tmp_path_factory.mktemp("one") / "home", drafts)


def theirs(session, name, tmp_path):
    """A committed export with this ledger's id in its tags."""
    file = tmp_path / name
    file.write_text((FILES / name).read_text().replace("LEDGER", session.ledger.id))
    return file


def written(tmp_path, *rows, columns=COLUMNS):
    usual = {"BillingCurrency": "USD", "ChargeCategory": "Usage", "ProviderName": "AWS", "ServiceCategory": "Compute"}
    usual |= {"ChargePeriodStart": HALF_DAY[0], "ChargePeriodEnd": HALF_DAY[1], "ResourceId": "i-0123456789abcdef0"}
    usual |= {"PricingQuantity": "12", "PricingUnit": "Hours", "Tags": "", "ChargeDescription": "g4dn.xlarge"}
    file = tmp_path / "export.csv"
    with file.open("w", newline="") as text:
        writer = csv.DictWriter(text, columns, extrasaction="ignore", restval="")
        writer.writeheader()
        writer.writerows(usual | row for row in rows)
    return file


def kinds(value, resource="cg-1"):
    """Each reason of a resource with its dollars."""
    (found,) = [one for one in value["resources"] if one["id"] == resource]
    return {part["kind"]: Decimal(part["usd"]) for part in found["reasons"]}


def test_an_aws_export_agrees_but_for_the_bytes_out(everything, tmp_path):
    value = reconcile(everything, theirs(everything, "aws_1_2.csv", tmp_path))
    otter = next(one for one in value["resources"] if one["id"] == "cg-1")
    # The extra request of another service and the tax of the month are nobody's here.
    assert value["unmatched"] == {"rows": 2, "usd": "1.600000612", "parts": {"other": "0.000000612", "tax": "1.6"}}
    assert otter["likely_reason"] == "range"
    assert "leaves the region" in otter["reasons"][0]["why"]
    assert otter["parts"]["bill"]["egress"] == "0.36"
    assert otter["parts"]["ledger"]["egress"] == "1.08"
    for part in ("compute", "storage", "address"):
        ours, other = (Decimal(otter["parts"][side][part]) for side in ("ledger", "bill"))
        assert abs(ours - other) < Decimal("0.01"), part
    assert {"us-east-1/i-0123456789abcdef0", "i-0123456789abcdef0"} <= set(otter["resource_ids"])
    assert value["providers"] == ["aws"]
    assert {one["id"] for one in value["resources"]} == {"cg-1", "cg-2", "cg-3", "vol-1"}


def test_what_ends_while_the_ledger_is_read_is_counted_once(tmp_path, monkeypatch):
    aws = {"provider": "aws", "account": "lab", "instance_type": "g4dn.xlarge", "price": PRICE}
    own = {"cg-1": "i-0123456789abcdef0", "cg-2": "i-0fedcba9876543210"}
    begun = [
        line for one in own for line in (launched(one, HALF_DAY[0], **aws), looked(one, HALF_DAY[0], own=own[one]))
    ]
    session = filled(tmp_path / "home", begun)
    bill = {"BilledCost": "6.312", "ListCost": "6.312"}
    file = written(tmp_path, *(bill | {"ResourceId": one} for one in own.values()))
    read_rows, to_end = session.ledger.billable_machines, list(own)

    def rows_and_then_one_ends():
        rows = read_rows()
        one = to_end.pop()
        filled(tmp_path / "home", [looked(one, HALF_DAY[1], "terminated", own=own[one])]).ledger.close()
        return rows

    monkeypatch.setattr(session.ledger, "billable_machines", rows_and_then_one_ends)
    found = reconcile(session, file)["resources"]
    assert [one["ledger_usd"] for one in found] == ["6.312", "6.312"]


def test_a_gzipped_export_is_the_same(everything, tmp_path):
    file = theirs(everything, "aws_1_2.csv", tmp_path)
    packed = tmp_path / "export.csv.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    plain = reconcile(everything, file)
    assert reconcile(everything, packed) == plain | {"file": str(packed)}


def test_an_azure_export_in_won_needs_a_rate_and_says_it(everything, tmp_path):
    file = theirs(everything, "azure_1_0.csv", tmp_path)
    with pytest.raises(InvalidRequest, match="no exchange rate for KRW") as fault:
        reconcile(everything, file)
    assert fault.value.field == "BillingCurrency"
    rate = Currency("KRW", Decimal("1385.2"), date(2026, 12, 1), "a bank")
    session = replace(everything, settings=replace(everything.settings, currencies={"KRW": rate}))
    value = reconcile(session, file)
    assert value["rates"] == ["1 USD = 1385.2 KRW, rate of 2026-12-01 (a bank)"]
    (korea,) = value["resources"]
    # 0.90 $/h there, 1.131 $/h unverified here: for two days. The disk is the same to a cent.
    assert korea["likely_reason"] == "price"
    assert abs(kinds(value, "cg-4")["price"] + Decimal("11.088")) < Decimal("0.01")


def test_a_google_export_out_of_bigquery_is_matched_by_its_list_of_labels(everything, tmp_path):
    value = reconcile(everything, theirs(everything, "google_1_0.csv", tmp_path))
    (seoul,) = value["resources"]
    assert (seoul["id"], seoul["bill_usd"]) == ("cg-5", "3.5")
    # Cores and memory have hours of their own: they are not taken for the machine's. It vanished: a range.
    assert seoul["likely_reason"] == "range"
    assert seoul["parts"]["bill"] == {"compute": "3.1", "egress": "0.4"}


def test_our_own_export_agrees_with_the_ledger(everything, tmp_path):
    file = tmp_path / "own.csv"
    export(everything, ExportFormat.FOCUS, ExportPeriod(None, None, NOW), file, io.StringIO())
    value = reconcile(everything, file)
    # What runs still goes on after the last row; the rest is the same to a nano-dollar.
    agreed = dict.fromkeys(("cg-1", "cg-3", "cg-4", "cg-5", "vol-1"), "agrees")
    assert {one["id"]: one["likely_reason"] for one in value["resources"]} == agreed | {"cg-2": "no price here"}
    assert abs(Decimal(value["discrepancy_usd"])) < Decimal("1e-6")


SAMPLE = FILES / "sample_of_the_foundation.csv"
# A machine's id in the sample, its type, price, begin, and the seconds that AWS's hours are to six digits.
BILLED = [
    ("cg-1", "i-0834le5b437l856a8", "g5.4xlarge", 1_624_000_000, "2024-09-22T17:00:00.000000Z", 3600, "1.624"),
    ("cg-2", "i-09ba12e1l5743720b", "g5.4xlarge", 1_624_000_000, "2024-09-21T01:00:00.000000Z", 1066, "0.480884264"),
    ("cg-3", "i-035fel2la90287a83", "g3.4xlarge", 1_140_000_000, "2024-09-30T18:00:00.000000Z", 2472, "0.78280038"),
]


def of_the_sample(machine, own, kind, nanos, begin, seconds):
    """A machine as this ledger would have it that AWS billed in the sample."""
    end = iso(from_iso(begin) + timedelta(seconds=seconds))
    price = PRICE | {"nanos_per_hour": nanos}
    aws = {"provider": "aws", "account": "lab", "instance_type": kind, "name": machine, "price": price}
    return [
        launched(machine, begin, **aws),
        looked(machine, begin, own=own, launched_at=begin),
        looked(machine, end, "terminated", own=own, launched_at=begin),
    ]


def test_a_public_sample_of_real_bills_is_read_to_the_last_row(one):
    with SAMPLE.open(newline="") as text:
        rows = list(csv.DictReader(text))
    value = reconcile(one, SAMPLE)
    assert value["rows"] == value["unmatched"]["rows"] == len(rows) == 36
    assert value["providers"] == ["aws", "azure", "oracle"]
    assert Decimal(value["unmatched"]["usd"]) == round(sum(Decimal(row["BilledCost"]) for row in rows), 9)
    assert set(value["unmatched"]["parts"]) == {"compute", "storage", "egress", "credit", "other"}
    assert (value["since"], value["until"]) == ("2024-09-01T00:00:00.000000Z", "2024-09-30T23:00:00.000000Z")
    assert value["resources"] == [], "this ledger's machine ran in another year"


def test_machines_that_aws_billed_cost_the_same_here(tmp_path):
    drafts = [line for machine in BILLED for line in of_the_sample(*machine[:6])]
    value = reconcile(filled(tmp_path / "home", drafts), SAMPLE, "aws")
    found = {each["id"]: each for each in value["resources"]}
    assert {one: found[one]["bill_usd"] for one in found} == {machine[0]: machine[-1] for machine in BILLED}
    # AWS rounds the hours to six digits, so that a run may differ by less than two thousandths of a cent.
    assert all(abs(Decimal(each["discrepancy_usd"])) < Decimal("0.00002") for each in found.values())
    assert {each["likely_reason"] for each in found.values()} == {"agrees"}


AGREED = {"BilledCost": "6.312"}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([AGREED], {}),
        ([{"BilledCost": "6.696"}], {"price": Decimal("0.384")}),
        ([{"BilledCost": "5.6808", "ListCost": "6.312"}], {"discount": Decimal("-0.6312")}),
        ([{"BilledCost": "6.838", "PricingQuantity": "13"}], {"hours": Decimal("0.526")}),
        (
            [AGREED, {"BilledCost": "0.631", "ChargeCategory": "Tax", "PricingQuantity": "", "PricingUnit": ""}],
            {"tax": Decimal("0.631")},
        ),
        ([AGREED, {"BilledCost": "-2", "ChargeCategory": "Credit"}], {"credit": Decimal(-2)}),
        ([AGREED, {"BilledCost": "-2"}], {"credit": Decimal(-2)}),
        (
            [AGREED, {"BilledCost": "0.9", "ChargeDescription": "data transfer out", "PricingUnit": "GB"}],
            {"egress": Decimal("0.9")},
        ),
        (
            [AGREED, {"BilledCost": "0.4", "ServiceCategory": "Storage", "PricingUnit": "GB-Months"}],
            {"storage": Decimal("0.4")},
        ),
        ([AGREED, {"BilledCost": "0.06", "ChargeDescription": "public IPv4 address"}], {"address": Decimal("0.06")}),
        (
            [{"BilledCost": "4.208", "PricingQuantity": "8", "ChargePeriodEnd": "2026-12-01T08:00:00Z"}, "of others"],
            {"lag": Decimal("-2.104")},
        ),
        (["of others"], {"lag": Decimal("-6.312")}),
    ],
)
def test_a_gap_has_its_reasons_and_they_add_up(rows, expected, one, tmp_path):
    others = {"BilledCost": "1", "ResourceId": "i-0ffffffffffffffff"}
    value = reconcile(one, written(tmp_path, *(others if row == "of others" else row for row in rows)))
    assert kinds(value) == expected
    (found,) = value["resources"]
    assert Decimal(found["discrepancy_usd"]) == sum(expected.values())
    assert found["likely_reason"] == (next(iter(expected)) if expected else "agrees")


def test_a_correction_of_an_earlier_month_is_a_refund_and_compares_no_earlier_time(tmp_path):
    """FOCUS, ChargeClass: such a row has the period of the charge that it corrects, which an earlier bill had."""
    aws = {"provider": "aws", "account": "lab", "instance_type": "g4dn.xlarge", "price": PRICE}
    started, corrected = "2026-11-01T00:00:00Z", {"ChargePeriodStart": "2026-11-01T00:00:00Z"}
    session = filled(
        tmp_path / "home",
        [launched("cg-1", started, **aws), looked("cg-1", started), looked("cg-1", HALF_DAY[1], "terminated")],
    )
    correction = corrected | {"BilledCost": "2", "ChargeClass": "Correction", "PricingQuantity": "4"}
    value = reconcile(session, written(tmp_path, AGREED, correction, columns=(*COLUMNS, "ChargeClass")))
    assert (value["since"], value["ledger_usd"]) == (iso(from_iso(HALF_DAY[0])), "6.312")
    assert kinds(value) == {"credit": Decimal(2)}


def test_a_row_that_names_no_provider_is_of_that_of_its_machine(one, tmp_path):
    """AWS's own list of gaps: ProviderName may be null. Tax on no resource names none at all."""
    tax = {"BilledCost": "1", "ChargeCategory": "Tax", "ResourceId": "", "ProviderName": ""}
    file = written(tmp_path, AGREED | {"ProviderName": ""}, tax)
    for asked in (None, "aws"):
        value = reconcile(one, file, asked)
        assert (value["providers"], kinds(value), value["ledger_usd"]) == (["aws"], {}, "6.312")
    assert reconcile(one, file)["unmatched"]["usd"] == "1"


def test_hours_and_price_that_both_differ_are_told_apart(one, tmp_path):
    value = reconcile(one, written(tmp_path, {"BilledCost": "7.254", "PricingQuantity": "13"}))
    assert kinds(value) == {"hours": Decimal("0.526"), "price": Decimal("0.416")}


def test_what_is_not_in_an_old_export_is_missing_and_not_late(one, tmp_path):
    later = replace(one, clock=lambda: NOW.replace(year=2027))
    file = written(tmp_path, {"BilledCost": "1", "ResourceId": "i-0ffffffffffffffff"})
    assert kinds(reconcile(later, file)) == {"missing there": Decimal("-6.312")}


def test_what_carries_our_tag_and_is_not_in_the_ledger_is_missing_here(one, tmp_path):
    lost = f'{{"user:cloudgpu-id": "cg-lost", "user:cloudgpu-ledger": "{one.ledger.id}"}}'
    value = reconcile(one, written(tmp_path, AGREED, {"BilledCost": "3", "Tags": lost, "ResourceId": "i-0e"}))
    assert kinds(value, "cg-lost") == {"missing here": Decimal(3)}
    assert kinds(value) == {}


@pytest.mark.parametrize(
    ("account", "ledger", "left_out"),
    [
        ("111111111111", "6.312", ["AWS account 222222222222"]),
        ("999999999999", "12.624", []),  # the payer of both, and no row says which of them it is of
    ],
)
def test_the_bill_of_one_account_says_nothing_of_a_colleagues(account, ledger, left_out, tmp_path):
    aws = {"provider": "aws", "account": "aws", "instance_type": "g4dn.xlarge", "price": PRICE}
    drafts = []
    for number, own in (("111111111111", "i-0123456789abcdef0"), ("222222222222", "i-0fedcba9876543210")):
        identity = {"kind": "aws account", "id": number, "words": f"AWS account {number}"}
        drafts += [
            launched(f"cg-{number}", HALF_DAY[0], **aws, identity=identity),
            looked(f"cg-{number}", HALF_DAY[0], own=own),
            looked(f"cg-{number}", HALF_DAY[1], "terminated", own=own),
        ]
    bill = {"BilledCost": "6.312", "ListCost": "6.312", "BillingAccountId": account}
    file = written(tmp_path, bill, columns=(*COLUMNS, "BillingAccountId"))
    value = reconcile(filled(tmp_path / "home", drafts), file)
    assert (value["ledger_usd"], value["accounts_left_out"]) == (ledger, left_out)


def test_what_another_ledger_launched_is_counted_apart(one, tmp_path):
    other = '{"cloudgpu_id": "cg-9", "cloudgpu_ledger": "another"}'
    value = reconcile(one, written(tmp_path, AGREED, {"BilledCost": "3", "Tags": other}))
    assert value["other_ledgers"] == {"rows": 1, "usd": "3"}
    assert [one["id"] for one in value["resources"]] == ["cg-1"]


def test_a_machine_without_a_price_here_is_said_to_have_none(tmp_path, capsys):
    drafts = [launched("cg-1", HALF_DAY[0], provider="aws", price=None), looked("cg-1", HALF_DAY[0])]
    session = filled(tmp_path / "home", [*drafts, looked("cg-1", HALF_DAY[1], "terminated")])
    value = reconcile(session, written(tmp_path, AGREED))
    assert kinds(value) == {"no price here": Decimal("6.312")}
    assert value["resources"][0]["unpriced"] is True
    nothing_billed = reconcile(session, written(tmp_path, AGREED | {"BilledCost": "0"}))
    assert nothing_billed["resources"][0]["likely_reason"] == "no price here"  # an unknown cost agrees with nothing
    _write_csv(nothing_billed)
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["ledger_usd"], row["ledger_high_usd"], row["bill_usd"]) == ("", "", "0")


@pytest.mark.parametrize(
    "resource",
    [
        "i-0123456789abcdef0",
        "arn:aws:ec2:us-east-1:123456789012:instance/i-0123456789abcdef0",
        "us-east-1/I-0123456789ABCDEF0",
    ],
)
def test_ids_are_matched_bare_as_an_arn_and_in_any_case(resource, one, tmp_path):
    assert kinds(reconcile(one, written(tmp_path, AGREED | {"ResourceId": resource}))) == {}


def test_a_volume_is_known_by_its_id_though_it_bears_a_machines_tag(everything, tmp_path):
    volume = {"ResourceId": "vol-0123456789abcdef0", "BilledCost": "1", "ServiceCategory": "Storage"}
    value = reconcile(everything, written(tmp_path, volume | {"Tags": '{"cloudgpu-id": "cg-1"}'}))
    assert {one["id"] for one in value["resources"] if one["bill_usd"] == "1"} == {"vol-1"}


def test_an_id_that_two_have_matches_neither(tmp_path):
    drafts = [
        line_
        for machine, zone in (("cg-1", "a"), ("cg-2", "b"))
        for line_ in (
            launched(machine, HALF_DAY[0], provider="gcp", price=PRICE),
            looked(machine, HALF_DAY[0], provider_id=f"lab/zone-{zone}/same"),
        )
    ]
    session = filled(tmp_path / "home", drafts)
    google = {"ProviderName": "Google Cloud", "BilledCost": "1"}
    value = reconcile(session, written(tmp_path, google | {"ResourceId": "same"}))
    assert value["unmatched"]["rows"] == 1
    whole = reconcile(session, written(tmp_path, google | {"ResourceId": "lab/zone-b/same"}))
    assert {one["id"]: one["bill_usd"] for one in whole["resources"]} == {"cg-1": "0", "cg-2": "1"}


def test_only_the_provider_that_is_asked_for_is_compared(everything, tmp_path):
    rows = [AGREED, {"BilledCost": "9", "ProviderName": "Microsoft", "ResourceId": "korea"}]
    value = reconcile(everything, written(tmp_path, *rows), "azure")
    assert (value["rows"], value["providers"], [one["id"] for one in value["resources"]]) == (1, ["azure"], ["cg-4"])
    with pytest.raises(InvalidRequest, match="no rows of gcp; it has rows of: aws, azure"):
        reconcile(everything, written(tmp_path, *rows), "gcp")


def test_a_file_with_the_old_names_is_read_too(one, tmp_path):
    old = {"ChargeCategory": "ChargeType", "ResourceId": "ResourceID", "ProviderName": "Provider"}
    text = written(tmp_path, AGREED).read_text()
    for name, before in (old | {"BillingCurrency": "BilledCurrency"}).items():
        text = text.replace(name, before, 1)
    (tmp_path / "export.csv").write_text(text)
    assert kinds(reconcile(one, tmp_path / "export.csv")) == {}


HEADER = ",".join(COLUMNS)
ROW = "1,USD,Usage,2026-12-01T00:00:00Z,2026-12-01T01:00:00Z,AWS,i-1,,Compute,x,1,Hours,1"


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "is empty: it is not a FOCUS export"),
        (b"\n\n", "is empty"),
        (b"name,price\na,1\n", "has not one column of FOCUS"),
        (HEADER.replace("BilledCost", "Cost").encode(), "has no column BilledCost"),
        (HEADER.replace("BilledCost", "billedcost").encode(), r"has no column BilledCost \(it has 'billedcost'\)"),
        (HEADER.encode(), "has a header and no rows"),
        (f"{HEADER}\n{ROW}\n{ROW[:60]}".encode(), r"line 3 has \d columns and the header 13: it is cut short"),
        (f"{HEADER}\n{ROW},more\n".encode(), "line 2 has 14 columns"),
        (f'{HEADER}\n{ROW}\n1,"US'.encode(), "is not a complete CSV file"),
        (f"{HEADER}\n{ROW.replace('1,', 'free,', 1)}\n".encode(), "BilledCost is not a number: 'free'"),
        (f"{HEADER}\n{ROW.replace('1,', '$1,', 1)}\n".encode(), r"BilledCost is not a number: '\$1'"),
        (f"{HEADER}\n{ROW.replace('1,', 'NaN,', 1)}\n".encode(), "BilledCost is not a number: 'NaN'"),
        (f"{HEADER}\n{ROW.replace('1,', '1e99999999,', 1)}\n".encode(), "BilledCost is not a number: '1e99999999'"),
        (f"{HEADER}\n{ROW.replace('1,', ',', 1)}\n".encode(), "BilledCost must not be empty"),
        (f"{HEADER}\n{ROW.replace('2026-12-01T00', '30/02/2026 00')}\n".encode(), "ChargePeriodStart is not a time"),
        (f"{HEADER}\n{ROW.replace('i-1,', 'i-1,[1]')}\n".encode(), "Tags is not a JSON object"),
        (f"{HEADER}\n{ROW.replace('USD', 'DOLLAR')}\n".encode(), "'DOLLAR' is not a currency of ISO 4217"),
        (f"{HEADER}\n{ROW}\n".encode("utf-16"), "is not UTF-8 text"),
        (b"PAR1\x15\x04\x15\xff", "is not UTF-8 text"),
        (gzip.compress((f"{HEADER}\n" + f"{ROW}\n" * 2000).encode())[:-20], "ends in the middle, or is damaged"),
        (gzip.compress(f"{HEADER}\n{ROW}\n".encode())[:-8] + bytes(8), "ends in the middle, or is damaged"),
    ],
)
def test_a_file_that_is_no_export_is_one_sentence(raw, says, one, tmp_path):
    file = tmp_path / "bad.csv"
    file.write_bytes(raw)
    before = one.ledger.head()
    with pytest.raises(InvalidRequest, match=says) as fault:
        reconcile(one, file)
    assert fault.value.next
    assert "\n" not in fault.value.message
    assert one.ledger.head() == before


@pytest.mark.parametrize(("name", "says"), [("none.csv", "no such file"), (".", "is a directory")])
def test_a_file_that_cannot_be_read_is_one_sentence(name, says, one, tmp_path):
    with pytest.raises(InvalidRequest, match=says):
        reconcile(one, tmp_path / name)


def test_taxes_alone_leave_nothing_to_compare(one, tmp_path):
    value = reconcile(one, written(tmp_path, AGREED | {"ChargeCategory": "Tax", "ResourceId": ""} | WHOLE_DAY))
    assert (value["since"], value["resources"], value["unmatched"]["rows"]) == (None, [], 1)


def test_many_rows_are_read_as_a_stream(one, tmp_path, monkeypatch):
    file = tmp_path / "many.csv"
    with file.open("w") as text:
        text.write(f"{HEADER}\n")
        text.writelines(f"{ROW}\n" for _ in range(5000))
    monkeypatch.setattr(Path, "read_text", None)  # nobody reads it whole
    monkeypatch.setattr(Path, "read_bytes", None)
    assert reconcile(one, file)["unmatched"] == {"rows": 5000, "usd": "5000", "parts": {"compute": "5000"}}
