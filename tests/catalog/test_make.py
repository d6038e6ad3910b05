"""The script makes what is committed, and notices every kind of fault in the facts."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from cloudgpu.catalog import make
from cloudgpu.catalog.checks import catalogue_errors
from cloudgpu.catalog.rules import legacy_reason, without_search_notes

HERE = Path(make.__file__).parent


def test_what_is_committed_is_what_the_script_makes(capsys):
    assert make.main(["--check"]) == 0
    assert capsys.readouterr().err == ""


def test_taking_the_facts_again_changes_nothing(tmp_path):
    make.copy_facts(HERE / "facts", tmp_path)
    for name in make.COPIED_TABLES:
        assert (tmp_path / f"{name}.csv").read_bytes() == (HERE / "facts" / f"{name}.csv").read_bytes()


def test_other_providers_and_restricted_regions_are_not_taken(tmp_path):
    for name in make.COPIED_TABLES:
        shutil.copy(HERE / "facts" / f"{name}.csv", tmp_path)
    with (tmp_path / "prices.csv").open("a", encoding="utf-8") as file:
        file.write("lambda,us-west-1,gpu_1x_a10,0.75,,no spot,2026-01-01,,x,single\n")
        file.write("aws,us-gov-west-1,p3.2xlarge,3.84,,,2026-01-01,,x,single\n")
    make.copy_facts(tmp_path, tmp_path / "taken")
    assert (tmp_path / "taken" / "prices.csv").read_bytes() == (HERE / "facts" / "prices.csv").read_bytes()


def test_a_table_with_nothing_to_take_is_named_and_no_table_is_changed(tmp_path, capsys):
    source, here = tmp_path / "source", tmp_path / "here"
    shutil.copytree(HERE / "facts", source)
    shutil.copytree(HERE / "facts", here / "facts")
    header, row, *_ = (source / "gpus.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (source / "gpus.csv").write_text(header + row, encoding="utf-8")
    file = source / "quotas.csv"
    file.write_text(file.read_text(encoding="utf-8").splitlines(keepends=True)[0], encoding="utf-8")
    assert make.main(["--here", str(here), "--take", str(source)]) == 1
    assert capsys.readouterr().err == f"{source}: nothing to take from quotas.csv; no table was changed\n"
    for name in make.COPIED_TABLES:
        assert (here / "facts" / f"{name}.csv").read_bytes() == (HERE / "facts" / f"{name}.csv").read_bytes()


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(HERE / "facts", tmp_path / "facts")
    shutil.copy(HERE / "catalog.json", tmp_path)
    return tmp_path


def run(copy, capsys, *more):
    code = make.main(["--here", str(copy), *more])
    return code, capsys.readouterr().err


def change(copy, table, where, **new):
    """Change the one row of a table that has these values."""
    file = copy / "facts" / f"{table}.csv"
    rows = make.read_table(file)
    (row,) = (row for row in rows if all(row[key] == text for key, text in where.items()))
    row.update(new)
    with file.open("w", encoding="utf-8", newline="") as text:
        writer = csv.DictWriter(text, list(row))
        writer.writeheader()
        writer.writerows(rows)


@pytest.mark.soak
def test_an_altered_catalogue_is_noticed(copy, capsys):
    file = copy / "catalog.json"
    file.write_text(file.read_text().replace('"0.526"', '"0.026"', 1))
    assert run(copy, capsys, "--check") == (
        1,
        "catalog.json is not what the facts make: run python -m cloudgpu.catalog.make\n",
    )
    assert run(copy, capsys) == (0, "")
    assert run(copy, capsys, "--check") == (0, "")


G4DN = {"cloud": "aws", "region": "us-east-1", "instance_type": "g4dn.xlarge"}
TYPE = {"cloud": "aws", "instance_type": "g4dn.xlarge"}
SAO_PAULO = {"region": "sa-east-1", "type": "gp3"}
WRONG = [
    ("prices", G4DN, {"price_on_demand_usd_hr": "0"}, "0 is not a price"),
    ("prices", G4DN, {"price_on_demand_usd_hr": "free"}, "free is not a price"),
    ("prices", G4DN, {"price_on_demand_usd_hr": "-0.5"}, "-0.5 is not a price"),
    ("prices", G4DN, {"price_on_demand_usd_hr": "52600"}, "52600 is not a price"),
    ("prices", G4DN, {"price_spot_usd_hr": "0.6"}, "spot costs more than on demand"),
    ("prices", G4DN, {"spot_basis": ""}, "does not say what its spot price is based on"),
    ("prices", G4DN, {"as_of_on_demand": ""}, "no date"),
    ("prices", G4DN, {"source": ""}, "has no source"),
    ("prices", G4DN, {"region": "us-esat-1"}, "unknown region"),
    ("prices", G4DN, {"region": "us-gov-west-1"}, "restricted region"),
    ("prices", G4DN, {"region": "us-east-2"}, "stands there 2 times"),
    ("prices", G4DN, {"cloud": "acme"}, "another provider"),
    ("gpu_instances", TYPE, {"vcpus": "0"}, "vcpus is 0"),
    ("gpu_instances", TYPE, {"mem_gib": "0"}, "memory_gib is 0"),
    ("gpu_instances", TYPE, {"accel_mem_gib_each": "24"}, "24.0 GiB is not a share of 1.0 in 16.0 GiB"),
    ("gpu_instances", TYPE, {"accel_count": "0.5"}, "is not a share of 0.5"),
    ("gpu_instances", TYPE, {"accel_count": "160"}, "count is 160"),
    ("gpu_instances", TYPE, {"as_of": ""}, "has no date"),
    ("gpu_instances", TYPE, {"instance_type": "g4dn.2xlarge"}, "stands there 2 times"),
    ("gpus", {"gpu": "T4"}, {"spec_source": ""}, "has no source"),
    ("gpus", {"gpu": "RTX3090"}, {"street_used_usd": "cheap"}, "used_usd of its card is cheap"),
    ("gpus", {"gpu": "RTX3090"}, {"price_as_of": ""}, "its card has a price and no date"),
    ("storage_prices", {"region": "us-east-1", "type": "gp3"}, {"unit": "usd_per_mb"}, "unknown unit"),
    ("storage_prices", {"region": "us-east-1", "type": "gp3"}, {"as_of": ""}, "has no date"),
    ("storage_prices", {"region": "us-east-1", "type": "gp3"}, {"price_usd": ""}, "is not a price"),
    ("storage_regions", SAO_PAULO, {"price_usd": "0"}, "is not a price"),
    ("storage_regions", SAO_PAULO, {"low_usd": "0.2"}, "not a price above 0.2"),
    ("storage_regions", SAO_PAULO, {"region": "sa-west-1"}, "sa-east-1 has GPU machines and no price of it"),
    ("storage_regions", SAO_PAULO, {"region": "sa-east-1/us-east-1"}, "us-east-1 is priced twice"),
    ("storage_regions", SAO_PAULO, {"as_of": ""}, "has no date"),
    ("storage_regions", SAO_PAULO, {"source": ""}, "has no source"),
    ("networks", {"instance_type": "g5.xlarge"}, {"gbit_per_s": "0"}, "0 Gbit/s is not the speed of a network"),
    ("networks", {"instance_type": "g5.xlarge"}, {"as_of": ""}, "has no date"),
    (
        "spot_interruption",
        {"instance_type": "g4ad.16xlarge", "region": "us-east-1"},
        {"bucket": "often"},
        "often is not a range of the Spot Advisor",
    ),
    ("confirmations", {"region": "sa-east-1"}, {"prices": "g4dn.xlarge=9"}, "is 9 there and 0.894 in prices"),
]


@pytest.mark.parametrize(("table", "where", "new", "says"), WRONG, ids=lambda value: str(value)[:40])
def test_a_fault_in_the_facts_is_named_and_nothing_is_written(copy, capsys, table, where, new, says):
    before = (copy / "catalog.json").read_bytes()
    change(copy, table, where, **new)
    code, err = run(copy, capsys)
    assert code == 1
    assert says in err
    assert (copy / "catalog.json").read_bytes() == before


def test_a_price_without_a_type_is_a_fault():
    made = json.loads((HERE / "catalog.json").read_text())
    del made["types"]["aws"]["g4dn.xlarge"]
    faults = list(catalogue_errors(made))
    assert faults[-1] == "aws g4dn.xlarge has a price and no type"
    assert set(faults[:-1]) == {"aws g4dn.xlarge has a network or spot interruptions and no type"}


def test_a_retirement_that_is_still_to_come_is_no_retirement():
    assert legacy_reason({"notes": "retirement announced for 2026-09-30"})
    assert not legacy_reason({"notes": "retirement announced for 2027-09-30"})
    assert not legacy_reason({"notes": "CurrentGeneration=false (previous generation)"})


def test_ids_of_one_days_search_are_not_kept():
    assert without_search_notes("one table (some_tool id 123)") == "one table"
    assert without_search_notes("some_tool excerpts of repos") == "excerpts of repos"
    assert (
        without_search_notes("skypilot-catalog v8/gcp/vms.csv @006059e0") == "skypilot-catalog v8/gcp/vms.csv @006059e0"
    )


def test_a_check_takes_no_facts(tmp_path, capsys):
    with pytest.raises(SystemExit):
        make.main(["--here", str(tmp_path), "--check", "--take", str(HERE / "facts")])
    assert "not allowed with" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
