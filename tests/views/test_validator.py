"""The FinOps Foundation's own validator reads our export, and objects to nothing but its own slips."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cloudgpu.control.cost.exports import ExportFormat, ExportPeriod, export
from tests.views.ledger_of_all import NOW, aws_spot, filled, negotiated, others

PYTHON = Path(sys.prefix) / "focus" / "bin" / "python"
# FOCUS 1.0 has ProviderName, PublisherName, InvoiceIssuerName, ResourceId and ChargeCategory; 0.5 had these.
OLD_NAMES = {
    "Provider": "ProviderName",
    "Publisher": "PublisherName",
    "InvoiceIssuer": "InvoiceIssuerName",
    "ResourceID": "ResourceId",
    "ChargeType": "ChargeCategory",
}
SLIPS = {f"{name}_Required" for name in OLD_NAMES if name != "ChargeType"} | {"SkuPriceId_Nullable"}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    stream = io.StringIO()
    session = filled(tmp_path_factory.mktemp("validated") / "home", [*aws_spot(), *others(), *negotiated()])
    export(session, ExportFormat.FOCUS, ExportPeriod(None, None, NOW), None, stream)
    return list(csv.DictReader(io.StringIO(stream.getvalue())))


@pytest.fixture(scope="module")
def place():
    """Where the validator stands: it reads its list of currencies by a path from there."""
    if not PYTHON.exists():
        pytest.skip("There is no focus-validator here: `make test` installs it where Python 3.11 or 3.12 is found.")
    code = "from importlib.util import find_spec; print(find_spec('focus_validator').submodule_search_locations[0])"
    found = subprocess.run([PYTHON, "-c", code], capture_output=True, check=True)
    return Path(found.stdout.decode().strip()).parent


def as_it_is(rows):
    return rows


def with_old_names(rows):
    return [row | {old: row[new] for old, new in OLD_NAMES.items()} for row in rows]


def wrong(rows):
    broken = [dict(row) for row in rows]
    broken[0]["BilledCost"] = ""
    broken[1]["BillingCurrency"] = "DOLLARS"
    broken[2]["ChargePeriodStart"] = "2026-11-29 10:00:00"
    broken[3]["Tags"] = "cloudgpu-id=cg-1"
    broken[4]["ChargeFrequency"] = "Hourly"
    broken[5]["ServiceCategory"] = "GPUs"
    return broken


def in_digits(rows):
    return [row | {"BilledCost": "1", "SkuId": "1"} for row in rows]


JUDGED = (as_it_is, with_old_names, wrong, in_digits)
# One process for all: what it imports takes ten times as long as what it judges.
EACH = """
import sys
from focus_validator.main import main

for file in sys.argv[1:]:
    print("Of", file)
    sys.argv = ["focus-validator", "--data-file", file, "--validate-version", "1.0"]
    try:
        main()
    except SystemExit:
        pass
"""


@pytest.fixture(scope="module")
def objections(place, rows, tmp_path_factory):
    """What the validator says of each of these: the names of its rules."""
    root = tmp_path_factory.mktemp("judged")
    for make in JUDGED:
        with (root / make.__name__).with_suffix(".csv").open("w", newline="") as text:
            made = make(rows)
            writer = csv.DictWriter(text, list(made[0]))
            writer.writeheader()
            writer.writerows(made)
    files = [str((root / make.__name__).with_suffix(".csv")) for make in JUDGED]
    argv = [PYTHON, "-c", EACH, *files]
    done = subprocess.run(argv, cwd=place, capture_output=True, text=True, check=False, timeout=100)
    found = {}
    for make, file in zip(JUDGED, files, strict=True):
        _, mark, after = done.stdout.partition(f"Of {file}\n")
        text = after.partition(f"Of {root}")[0]
        found[make] = set(re.findall(r"^(\w+) failed:", text, re.MULTILINE))
        assert mark, done.stdout + done.stderr
        assert found[make] or "Validation succeeded" in text, done.stdout + done.stderr
    return found


@pytest.mark.soak
def test_it_objects_to_nothing_but_its_own_slips(objections):
    assert objections[as_it_is] == SLIPS


@pytest.mark.soak
def test_with_the_names_of_the_old_version_it_objects_to_nothing(objections):
    assert objections[with_old_names] == set()


def test_it_does_object_to_rows_that_are_wrong(objections):
    assert objections[wrong] - SLIPS == {
        "BilledCost_NotNull",
        "BillingCurrency_IsCurrencyCode",
        "ChargePeriodStart_IsDateTime",
        "Tags_IsJSONObject",
        "ChargeFrequency_Enum",
        "ServiceCategory_Enum",
    }


def test_it_takes_whole_numbers_for_no_decimals_and_digits_for_no_text(objections):
    assert objections[in_digits] - SLIPS == {
        "BilledCost_IsDecimal",
        "SkuId_IsString",
    }
