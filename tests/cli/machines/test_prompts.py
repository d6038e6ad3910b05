"""What `stop`, `down`, `extend` and `start` show before they ask: at most five lines, erasures and costs whole."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cloudgpu.cli.colours import coloured
from cloudgpu.cli.launch.running_text import down_question, extend_question, start_question, stop_question
from cloudgpu.views.machines import machine_document
from tests.views.ledger_of_all import filled, launched, looked

NOW = datetime(2026, 12, 1, 1, tzinfo=UTC)
AT = "2026-12-01T00:00:00.000000Z"
DISK = {"what": "system disk of 64 GB", "at_most": False, "usd_per_month": "5.12"}
DISK |= {"while_running": True, "while_stopped": True}
VOLUME = DISK | {"what": "volume data of 50 GB", "usd_per_month": "4.00"}
SCRATCH = "erases its 900 GB of scratch disks (instance store) and keeps its system disk, which is billed on as a disk"
WHOSE = " It is bob's; you pay for this ledger."


@pytest.fixture(params=["60", "80", "160"])
def value(tmp_path, request, monkeypatch):
    monkeypatch.setenv("COLUMNS", request.param)
    (row,) = filled(tmp_path, [launched("cg-1", AT), looked("cg-1", AT)], NOW).ledger.machines()
    return machine_document(row, NOW) | {"attached_costs": [DISK], "stopped_usd_per_month": "5.12"}


def labels(text):
    """Return the label of each line that has one, below the title."""
    return [line.split("  ")[1] for line in text.splitlines()[1:] if not line.startswith("   ")]


def words(text):
    return " ".join(text.split())


def test_a_stop_says_what_ends_what_is_erased_and_what_is_still_billed(value):
    text = stop_question(value, SCRATCH, WHOSE)
    assert labels(text) == ["what", "ends", "erases", "still billed", "whose"]
    assert f"Stopping {SCRATCH}." in words(text)
    assert "$0.5260 an hour; $0.5260 so far" in words(text)
    assert "system disk of 64 GB: $5.12 a month" in words(text)
    assert WHOSE.strip() in words(text)


def test_a_stop_that_erases_nothing_says_what_it_does(value):
    text = stop_question(value, "keeps its disk", "")
    assert labels(text) == ["what", "ends", "effect", "still billed"]


def test_an_end_says_what_is_erased_and_which_volumes_stay_at_what_price(value):
    text = down_question([value], [VOLUME], "What is on it is deleted. The volume data stays.", "")
    assert labels(text) == ["what", "ends", "erases", "still billed"]
    assert "volume data of 50 GB, $4.00 a month" in words(text)
    unknown = down_question([value], [VOLUME | {"usd_per_month": None}], "What is on it is deleted.", "")
    assert "volume data of 50 GB, price not known" in words(unknown)


def test_the_end_of_several_adds_up_what_an_hour_costs_and_says_what_has_no_price(value):
    many = [value, value | {"name": "owl", "price": None}, value | {"name": "imp", "billed": False}]
    text = words(down_question(many, [], "What is on them is deleted.", WHOSE))
    assert f"3 machines: {value['name']}, owl, imp" in text
    assert "$0.5260 an hour and 1 without a known price; $1.58 so far" in text


def test_an_extension_says_until_when_and_what_it_adds(value):
    text = extend_question(value, "2026-12-01 09:00 UTC (in 8h); renew-until moves there too", "$4.21", "")
    assert labels(text) == ["what", "until", "costs", "also billed"]
    assert "renew-until moves there too" in words(text)
    assert "up to $4.21 more for the machine, at $0.5260 an hour" in words(text)
    assert "system disk of 64 GB, $5.12 a month" in words(text)


def test_an_extension_without_a_known_price_does_not_say_that_it_costs_nothing(value):
    text = words(extend_question(value | {"price": None}, "2026-12-01 09:00 UTC (in 8h)", "$0.00", ""))
    assert "costs it is not known: the machine has no known price" in text
    assert "$0.00" not in text


def test_a_start_says_what_it_costs_and_what_is_paid_beside_it(value):
    text = start_question(
        value, "$0.5260 an hour (listed 2026-11-20)", "$4.21 to its end", "2026-12-01T09:00:00.000000Z", NOW
    )
    assert labels(text) == ["what", "price", "costs", "also billed", "ends"]
    assert "system disk of 64 GB, $5.12 a month" in words(text)


def test_erasure_and_money_have_colours(value):
    lines = coloured(stop_question(value, SCRATCH, "")).splitlines()
    assert lines[0] == "\x1b[1mStop\x1b[0m"
    assert any(line.startswith("  \x1b[1;31merases\x1b[0m  ") for line in lines)
    assert any(line.startswith("  \x1b[1;35mstill billed\x1b[0m  ") for line in lines)
