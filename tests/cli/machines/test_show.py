"""`show` at a glance: the first line answers, at most eight lines, then every note about money and guards, whole."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cloudgpu.cli.machine_text import machine_details, machine_summary, state_sentence
from cloudgpu.views.machines import machine_document
from tests.views.ledger_of_all import filled, launched, looked

NOW = datetime(2026, 12, 1, 1, tzinfo=UTC)
AT = "2026-12-01T00:00:00.000000Z"
IN_2H = "2026-12-01T03:00:00.000000Z"
DISK = {"what": "system disk of 64 GB", "at_most": False, "usd_per_month": "5.12"}


@pytest.fixture
def value(tmp_path):
    (row,) = filled(tmp_path, [launched("cg-1", AT), looked("cg-1", AT)], NOW).ledger.machines()
    found = machine_document(row, NOW)
    guards = found["guards"] | {"agent": IN_2H, "agent_is": "ends", "timer": None, "timer_is": "none", "reaper": None}
    return found | {"guards": guards, "attached_costs": [], "reason": None}


def words(text):
    return " ".join(text.split())


def test_the_first_line_says_state_price_cost_and_what_ends_it(value):
    sentence = f"{value['name']} is running at $0.5260 an hour, $0.5260 so far; its agent ends it in 2h."
    assert state_sentence(value, NOW) == sentence


@pytest.mark.parametrize("columns", ["60", "80", "120", "160"])
def test_it_is_at_most_eight_lines_of_the_terminals_width(value, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    lines = machine_summary(value, NOW).splitlines()
    assert len([line for line in lines if not line.startswith("     ")]) <= 8
    assert columns == "60" or len(lines) <= 8
    assert max(map(len, lines)) <= int(columns)


@pytest.mark.parametrize(
    ("guards", "said"),
    [
        ({"timer": "2026-12-01T02:00:00.000000Z", "timer_is": "own"}, "its own timer ends it in 1h."),
        ({"reaper": AT}, "the reaper ends it now."),
        ({"agent": None}, "nothing is set to end it."),
    ],
)
def test_it_names_the_first_that_ends_it(value, guards, said):
    value["guards"] |= guards
    assert state_sentence(value, NOW).endswith(said)


def test_a_stopped_machine_says_what_stays_and_costs(value):
    value |= {"state": "stopped", "billed": False, "stopped_usd_per_month": "5.12"}
    value["attached_costs"] = [DISK | {"while_running": True, "while_stopped": True}]
    assert "is stopped, not billed; what stays costs $5.12 a month; $0.5260 so far." in state_sentence(value, NOW)
    value["attached_costs"] = None  # not known
    assert "what stays" not in state_sentence(value, NOW)


@pytest.mark.parametrize(("cluster", "named"), [(None, "fox"), ({"name": "train"}, "train")])
def test_what_is_kept_is_started_or_removed_by_a_name_that_both_verbs_take(value, cluster, named):
    disk = {"kind": "disk", "id": "vol-1", "size_gb": 64}
    value |= {"name": "fox", "terminated_at": "2026-12-01T00:30:00.000000Z", "cluster": cluster, "retained": [disk]}
    assert f"cloudgpu start {named}, or cloudgpu down {named}" in words(machine_summary(value, NOW))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"attached_costs": [DISK | {"while_running": True, "while_stopped": True}]},
            "system disk of 64 GB, $5.12 a month",
        ),
        (
            {"attached_costs": [DISK | {"while_running": True, "usd_per_month": None}]},
            "system disk of 64 GB, price not known",
        ),
        ({"guards": {"agent_is": "none", "agent": None}}, "only cloudgpu reap or watch ends it"),
        ({"unpriced": ["disk"]}, "without its disk: no price is known"),
        ({"price": None}, "at a price that is not known"),
        ({"reason": "the script exited with 3: /var/log/cloudgpu.log"}, "exited with 3: /var/log/cloudgpu.log"),
        ({"shared": [{"label": "bob", "key": "k", "from": "203.0.113.7/32"}]}, "bob from 203.0.113.7"),
        ({"taken_at": IN_2H}, "rehearsal: it is taken 2026-12-01 03:00 UTC (in 2h)"),
    ],
)
@pytest.mark.parametrize("columns", ["60", "120"])
def test_notes_about_money_guards_and_access_are_whole_at_every_width(value, monkeypatch, columns, more, said):
    monkeypatch.setenv("COLUMNS", columns)
    guards = value["guards"] | more.get("guards", {})
    assert said in words(machine_summary(value | more | {"guards": guards}, NOW))


def test_the_rest_is_behind_v(value):
    brief, full = machine_summary(value, NOW), machine_details(value, NOW)
    for label in ("template", "ended by", "a list, as of"):
        assert label not in brief
    assert "ended by" in full
    assert "template" in full
