"""The report's document: every sum adds up to that of `cost`, and a small story comes out as it is counted by hand."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal

import pytest

import cloudgpu
from cloudgpu.control.cost.cost import cost_document
from cloudgpu.control.cost.report import parse_report, report_document
from cloudgpu.control.cost.report_files import render_report, write_report
from cloudgpu.control.inputs.periods import parse_cost
from cloudgpu.control.lifecycle.lifecycle import stop, terminate_one
from cloudgpu.errors import InvalidRequest
from cloudgpu.ledger.samples.store import SampleStore

MINUTE = timedelta(minutes=1)
IDLE, BUSY, GPU = {}, {"busy": ["kernel 1"]}, {"gpu": 97.0}


def keep(lab, name, *pieces):
    """Live through (minutes, what each sample shows), keeping the samples of one machine; None keeps none."""
    (row,) = [one for one in lab.session.ledger.machines() if one.name == name]
    shelf = SampleStore(lab.session.home.samples, row.id)
    for minutes, shown in pieces:
        begin = lab.clock()
        lab.later(minutes=minutes)
        if shown is not None:
            samples = [
                {"t": (begin + n * MINUTE).timestamp(), "s": 60, "gpu": 0.0, "cpu": 0.02, "net": 400, "disk": 0} | shown
                for n in range(1, minutes + 1)
            ]
            shelf.keep(samples, lab.clock().timestamp() + 60, lab.clock() + MINUTE)


def report(lab, **asked):
    return report_document(lab.session, parse_report(lab.session, **asked))


def dollars(text):
    return Decimal(text)


def check_sums(lab, document, **asked):
    """All sums of one report are the same, and that of `cost`."""
    wish = parse_cost(lab.session.settings, lab.session.clock(), by="project", **asked)
    total = cost_document(lab.session, wish)["total"]
    assert document["total"] == total
    assert sum(dollars(one["usd"]) for one in document["days"]) == dollars(total["usd"])
    assert sum(dollars(one["usd"]) for one in document["projects"]) == dollars(total["usd"])
    for one in document["days"]:
        assert sum(map(dollars, one["projects"].values())) == dollars(one["usd"])
    rows = [*document["machines"], document["other_machines"], document["named_resources"]]
    assert sum(dollars(one["usd"]) for one in rows if one["usd"] is not None) == dollars(total["usd"])
    for one in document["machines"]:
        assert one["gpu_s"] + one["used_s"] + one["idle_s"] + one["unknown_s"] == one["billed_s"]


def test_an_empty_ledger_is_said_so_and_divides_by_nothing(lab):
    document = report(lab)
    assert document["summary"][0] == "Nothing has been spent yet: the ledger knows of no machine."
    assert (document["days"], document["machines"], document["total"]["usd"]) == ([], [], "0")
    for form in ("html", "md", "json"):
        assert "Nothing has been spent yet" in render_report(document, form)


def test_a_day_by_hand(lab):
    """At $3 an hour: an hour of GPU work, half of another use, an hour idle, half an hour unknown; then it is stopped.

    3 hours cost $9; $3 of it idle, at most $4.50. Stopped by its user, that saves nothing.
    """
    lab.up(name="fox", project="vision")
    keep(lab, "fox", (60, GPU), (30, BUSY), (60, IDLE), (30, None))
    stop(lab.session, lab.rows()[0], why="asked by the user")
    lab.later(hours=2)
    document = report(lab)
    check_sums(lab, document)
    (fox,) = document["machines"]
    assert (fox["usd"], fox["project"], fox["gpu"], fox["billed_s"]) == ("9", "vision", "v100", 3 * 3600)
    assert [fox[name] for name in ("gpu_s", "used_s", "idle_s", "unknown_s")] == [3600, 1800, 3600, 1800]
    assert fox["idle_usd"] == "3"
    assert document["idle"] == {"usd": "3", "low_usd": "3", "high_usd": "4.5", "hours": "1", "unknown_hours": "0.5"}
    assert document["projects"] == [{"name": "vision", "usd": "9", "low_usd": "9", "high_usd": "9"}]
    assert document["days"] == [{"day": "2026-11-20", "usd": "9", "projects": {"vision": "9"}}]
    assert document["savings"]["stops"]["number"] == 0
    assert [(one["kind"], one["usd_per_month"]) for one in document["idle_resources"]] == [("disk", None)]
    assert document["comparison"]["cloud"]["usd"] == "9"
    said = "Of what was spent, $3.00 (at most $4.50) went into 1.0 hours in which nobody used a machine."
    assert said in document["summary"]


@pytest.mark.soak
def test_an_end_by_a_rule_is_counted_and_one_by_a_person_is_not(fleet):
    """Idle from the start, at $3 an hour, it is stopped by a pass; five hours later all of the time since counts."""
    fleet.up(name="fox")
    while fleet.rows()[0].state == "running":
        fleet.idle(minutes=10)
    fleet.later(hours=5)
    fleet.up(name="owl", new=True)
    fleet.later(hours=1)
    stop(fleet.session, fleet.machine("owl"), why="asked by the user")
    fleet.later(hours=1)
    stops = report(fleet)["savings"]["stops"]
    assert (stops["number"], [one["rule"] for one in stops["by_rule"]]) == (1, ["idle"])
    assert stops["usd"] == "21"
    assert stops["hours"] == "7"
    assert (
        f"Policies stopped machines once, which saved up to ${dollars(stops['usd']):.2f}." in report(fleet)["summary"]
    )


def test_periods_zones_and_currencies(lab):
    """From 11:00 UTC on for 30 hours: in Seoul that is 20:00, so that 4, 24 and 2 hours are of three days."""
    lab.up(name="fox")
    lab.later(hours=30)
    document = report(lab, tz="Asia/Seoul", currency="KRW", rate="1400", rate_date="2026-11-01")
    assert [(one["day"], one["usd"]) for one in document["days"]] == [
        ("2026-11-20", "12"),
        ("2026-11-21", "72"),
        ("2026-11-22", "6"),
    ]
    assert document["currency"]["code"] == "KRW"
    assert "126,000 KRW" in document["summary"][0]
    span = {"since": "2026-11-21", "until": "2026-11-21T05:30"}
    part = report(lab, **span)
    check_sums(lab, part, **span)
    assert (part["total"]["usd"], part["machines"][0]["unknown_s"]) == ("16.5", 19_800)
    assert part["idle"]["high_usd"] == "16.5"
    assert part["projected"] is None


def test_many_machines_are_the_dearest_and_a_rest_that_adds_up(lab, monkeypatch):
    monkeypatch.setattr("cloudgpu.views.report.document.MAX_MACHINES", 2)
    for number in range(4):
        lab.up(name=f"m{number}", new=True, project="a" if number % 2 else "b")
        lab.later(minutes=20)
    document = report(lab)
    check_sums(lab, document)
    assert [one["name"] for one in document["machines"]] == ["m0", "m1"]
    assert (document["machines_left_out"], document["other_machines"]["usd"]) == (2, "3")
    assert document["other_machines"]["billed_s"] == 3600
    assert document["about"]["machines"] == 4


def test_a_clock_that_is_behind_the_ledger_is_said_first(lab):
    lab.up(name="fox")
    lab.later(hours=3)
    terminate_one(lab.session, lab.rows()[0], why="asked by the user")
    lab.clock.now -= timedelta(hours=2)
    document = report(lab)
    assert document["about"]["integrity_problem"]
    assert document["summary"][0].startswith("Amounts may be incomplete: the ledger failed its integrity check. ")
    assert all(Decimal(one["usd"]) >= 0 for one in document["days"])


def test_a_look_of_long_ago_is_said(lab):
    lab.up(name="fox")
    lab.later(days=3)
    said = "Not every machine was queried since 20 Nov 2026, 11:00: those count as they were then."
    assert said in report(lab)["summary"]


def test_a_history_of_years_is_shown_by_month(lab):
    lab.up(name="fox")
    lab.later(days=500)
    document = report(lab)
    assert (document["step"], document["days"][0]["day"], len(document["days"])) == ("month", "2026-11", 18)
    check_sums(lab, document)


def test_budgets_stand_as_in_cost(lab):
    with cloudgpu.connect(home=lab.home, clock=lab.clock) as gpu:
        gpu.money.set_budget("lab", 300, "month")
        lab.up(name="fox")
        lab.later(hours=10)
        document = gpu.money.report()
        assert document["budgets"] == gpu.money.cost()["budgets"]
        assert document["burn"] == gpu.money.cost()["burn"]
        assert any(one.startswith("The budget lab is empty on 2026-11-") for one in document["summary"])


def test_a_fault_names_its_option(lab):
    for asked, field in (
        ({"since": "tomorrow"}, "--since"),
        ({"since": "2027-01-01"}, "--since"),
        ({"until": "2020", "since": "2021-01-01"}, "--until"),
        ({"tz": "Mars/Base"}, "--tz"),
        ({"currency": "XXX"}, "--currency"),
        ({"rate": "nan", "currency": "KRW", "rate_date": "2026-11-01"}, "--rate"),
        ({"rate": "-3", "currency": "KRW", "rate_date": "2026-11-01"}, "--rate"),
        ({"desktop": "rtx3099"}, "desktop"),
        ({"work": "play"}, "--work"),
    ):
        with pytest.raises(InvalidRequest) as raised:
            report(lab, **asked)
        assert raised.value.field == field, asked
        assert raised.value.next
    with pytest.raises(TypeError, match="unexpected keyword argument 'sinse'"):
        report(lab, sinse="7d")


def test_a_file_is_private_whole_and_takes_no_place_but_a_reports(lab, tmp_path):
    document = report(lab)
    for form in ("html", "md", "json"):
        file = tmp_path / f"report.{form}"
        write_report(render_report(document, form), file)
        write_report(render_report(document, form), file)  # over one of ours
        assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads((tmp_path / "report.json").read_text())["kind"] == "cloudgpu report"
    mine = tmp_path / "thesis.html"
    mine.write_text("<!DOCTYPE html>\n<p>my thesis")
    for place in (mine, tmp_path, tmp_path / "missing" / "report.html", tmp_path / "a\0b"):
        with pytest.raises(InvalidRequest) as raised:
            write_report("new", place)
        assert (raised.value.field, bool(raised.value.next)) == ("--to", True)
    assert mine.read_text() == "<!DOCTYPE html>\n<p>my thesis"
    assert sorted(one.name for one in tmp_path.iterdir() if one.name.startswith(".")) == []
