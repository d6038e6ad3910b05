"""`export` and `cost reconcile` as they are typed: files, streams, exit codes, 80 columns."""

from __future__ import annotations

import csv
import io
import json
import os
from decimal import Decimal

import pytest

from cloudgpu.cli.app import run
from tests.ledger.lines import PRICE
from tests.views.ledger_of_all import NOW, filled, launched, looked

LONG = "a-machine-with-quite-a-long-name-of-40-ch"[:40]
HEADER = (
    "BilledCost,BillingCurrency,ChargeCategory,ChargePeriodStart,ChargePeriodEnd,ProviderName,ResourceId,PricingUnit,"
    "PricingQuantity,ServiceCategory"
)


@pytest.fixture
def typed(own_home, capsys):
    """A ledger of September 2026, long over by the real clock: what `run` is given is on its stdout and stderr."""
    aws = {"provider": "aws", "account": "lab", "instance_type": "g4dn.xlarge", "market": "on_demand"}
    drafts = []
    for number, name in enumerate(("otter", LONG), start=1):
        own = {"id": f"us-east-1/i-0123456789abcdef{number}"}
        machine = f"cg-{number}"
        drafts += [
            launched(machine, "2026-09-30T18:00:00Z", **aws, name=name, price=PRICE),
            looked(machine, "2026-09-30T18:00:00Z", provider_id=own["id"]),
            looked(machine, "2026-10-01T06:00:00Z", "terminated", provider_id=own["id"]),
        ]
    filled(own_home, drafts, NOW)

    def typed(*words):
        capsys.readouterr()
        code = run(list(words))
        return code, *capsys.readouterr()

    return typed


def export_of(tmp_path, *rows):
    file = tmp_path / "aws.csv"
    file.write_text("\n".join((HEADER, *rows)) + "\n")
    return file


def test_a_pipe_or_a_link_that_is_named_is_written_to_and_not_replaced(typed, tmp_path):
    pipe, link, real = tmp_path / "pipe", tmp_path / "link.csv", tmp_path / "real.csv"
    os.mkfifo(pipe)
    link.symlink_to(real)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert typed("export", "--out", str(pipe))[0] == 0
    assert os.read(reader, 1 << 16).startswith(b"AvailabilityZone")
    os.close(reader)
    assert pipe.is_fifo()
    assert typed("export", "--out", str(link))[0] == 0
    assert link.is_symlink()
    assert real.read_text().startswith("AvailabilityZone")


def test_focus_goes_to_stdout_and_what_was_written_to_stderr(typed):
    code, out, err = typed("export")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert (code, len(rows), err) == (0, 4, "  4 lines, $12.62.\n")
    assert sum(Decimal(row["BilledCost"]) for row in rows) == Decimal("12.624")


def test_a_file_is_written_whole_and_said(typed, tmp_path):
    file = tmp_path / "bill.json"
    code, out, err = typed("export", "--format", "json", "--since", "2026-10-01", "--out", str(file), "-o", "json")
    assert (code, err) == (0, "")
    said, document = json.loads(out), json.loads(file.read_text())
    assert said["rows"] == len(document["charges"]) == 2
    assert (said["usd"], said["since"], said["file"]) == ("6.312", "2026-10-01T00:00:00.000000Z", str(file))
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []


def test_a_day_begins_where_the_zone_says(typed):
    _, _, err = typed("export", "--until", "2026-10-01", "--tz", "Asia/Seoul")
    assert err == "  0 lines, $0.00.\n"
    _, _, err = typed("export", "--until", "2026-10-01", "--tz", "America/New_York")
    assert err == "  4 lines, $10.52.\n"


@pytest.mark.parametrize(
    ("words", "field", "says"),
    [
        (("export", "--since", "2026-02-30"), "--since", "2026-02-30"),
        (("export", "--since", "2026-10-02", "--until", "2026-10-01"), "--until", "is not after --since"),
        (("export", "--since", "2099-01-01"), "--since", "in the future"),
        (("export", "--tz", "Nowhere/City"), "--tz", "not a time zone"),
        (("export", "--out", "none/of/these/bill.csv"), "--out", "cannot be written: no such file"),
        (("export", "-o", "json"), "--output", "goes to stdout"),
        (("cost", "reconcile", "none.csv"), "FILE", "cannot be read: no such file"),
    ],
)
def test_what_cannot_be_is_one_error_with_its_field(words, field, says, typed, tmp_path):
    file = ("--out", str(tmp_path / "x")) if words[0] == "export" and not {"-o", "--out"} & {*words} else ()
    code, out, _ = typed(*words, *file, *(() if "-o" in words else ("-o", "json")))
    error = json.loads(out)["error"]
    assert (code, error["field"]) == (2, field)
    assert says in error["message"]
    assert error["next"]


@pytest.mark.parametrize("name", ["file/bill.csv", "file/sub/bill.csv", "x" * 300, "circle"])
def test_a_name_that_no_file_can_have_is_an_error_of_out(typed, tmp_path, name):
    (tmp_path / "file").write_text("kept")
    (tmp_path / "circle").symlink_to("circle")
    code, out, _ = typed("export", "--out", str(tmp_path / name), "-o", "json")
    error = json.loads(out)["error"]
    assert (code, error["field"]) == (2, "--out")
    assert "cannot be written: " in error["message"]
    assert (tmp_path / "file").read_text() == "kept"


def test_a_form_that_is_none_names_those_there_are(typed):
    code, _, err = typed("export", "--format", "xlsx")
    assert code == 2
    assert "focus" in err


def test_the_comparison_fits_80_columns_and_says_why(typed, tmp_path):
    times = "2026-09-30T18:00:00Z,2026-10-01T06:00:00Z"
    file = export_of(
        tmp_path,
        f"6.312,USD,Usage,{times},AWS,i-0123456789abcdef1,Hours,12,Compute",
        f"7.000,USD,Usage,{times},AWS,i-0123456789abcdef2,Hours,12,Compute",
        f"1.050,USD,Tax,{times},AWS,,,,",
    )
    code, out, err = typed("cost", "reconcile", str(file))
    assert (code, err) == (0, "")
    assert max(len(line) for line in out.splitlines()) <= 80
    table = [line.split() for line in out.splitlines()]
    assert ["otter", "$6.31", "$6.31", "$0.00", "agrees"] in table
    assert [f"{LONG[:23]}…", "$6.31", "$7.00", "+$0.69", "price"] in table
    assert ["total", "$12.62", "$13.31", "+$0.69"] in table
    assert "they charge $0.5833 an hour, the ledger $0.5260" in " ".join(out.split())
    assert "1 row is of nothing in this ledger: tax $1.05." in out


def test_the_comparison_as_csv_and_json_has_the_same_resources(typed, tmp_path):
    times = "2026-09-30T18:00:00Z,2026-10-01T06:00:00Z"
    file = export_of(tmp_path, f"6.312,USD,Usage,{times},AWS,i-0123456789abcdef1,Hours,12,Compute")
    value = json.loads(typed("cost", "reconcile", str(file), "-o", "json")[1])
    rows = list(csv.DictReader(io.StringIO(typed("cost", "reconcile", str(file), "-o", "csv")[1])))
    assert [(row["id"], row["discrepancy_usd"], row["likely_reason"]) for row in rows] == [
        (one["id"], one["discrepancy_usd"], one["likely_reason"]) for one in value["resources"]
    ]
    assert [row["likely_reason"] for row in rows] == ["missing there", "agrees"]


def test_cost_itself_still_answers(typed):
    assert typed("cost")[0] == 0
