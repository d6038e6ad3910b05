"""The jobs of watch beside the pass: each on a real ledger, with price lists and receivers on loopback."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from cloudgpu.catalog.location import use_directory
from cloudgpu.control.budgets.commands import BudgetOptions, set_budget_document
from cloudgpu.control.lifecycle.lease import set_hold
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.control.scheduler.jobs import RETRY_LATER, check_budgets, refresh_prices, send_alerts, watch_jobs
from cloudgpu.core.budgets.enforcement import MAX_WARNINGS
from cloudgpu.core.events.log import Draft
from cloudgpu.core.values.times import iso
from tests.clouds.azure_fixtures import azure_prices
from tests.clouds.azure_prices import REGIONS

__all__ = ["azure_prices"]

DAY = timedelta(days=1)
AZURE = f"[accounts.azure]\nregions = {json.dumps(REGIONS)}\n"


def job(name, *, every=timedelta(minutes=10), prices=DAY, run_at_once=lambda: None):
    return next(one for one in watch_jobs(every, prices, run_at_once=run_at_once) if one.name == name)


@pytest.fixture
def priced(make_lab):
    made = make_lab(AZURE)
    use_directory(made.session.home.price_lists)
    yield made
    use_directory(made.home / "nothing")


def test_prices_of_the_clouds_in_use_are_refreshed_once_a_day(priced, azure_prices):
    one = job("prices")
    assert one.due(priced.session) <= priced.clock()
    assert one.work(priced.session) == ""
    assert one.due(priced.session) == priced.clock() + DAY
    assert [file.name for file in priced.session.home.price_lists.glob("*.json")] == ["azure.json"]


def test_a_price_list_that_is_silent_is_named_and_asked_again_an_hour_later(priced, monkeypatch):
    monkeypatch.setenv("CLOUDGPU_AZURE_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("azure.core.pipeline.transport.RequestsTransport.sleep", lambda _self, _s: None)
    one = job("prices")
    assert refresh_prices(priced.session).startswith("prices were not refreshed of azure")
    assert one.due(priced.session) <= priced.clock()
    assert one.retry == RETRY_LATER


def test_without_a_cloud_no_price_list_is_asked(lab):
    assert job("prices").due(lab.session) > lab.clock()


def test_prices_can_be_left_alone():
    assert {one.name for one in watch_jobs(DAY, None, run_at_once=lambda: None)} == {
        "pass",
        "budgets",
        "alerts",
        "jobs",
        "report",
    }


def test_a_budget_that_stops_and_is_passed_calls_a_pass_at_once(lab):
    lab.up()
    lab.later(hours=2)
    urged = []
    assert check_budgets(lab.session, lambda: urged.append(1)) == ""
    set_budget_document(lab.session, BudgetOptions("tiny", "0.01", "month", action="notify,stop"), overwrite=False)
    said = check_budgets(lab.session, lambda: urged.append(1))
    assert said == "the budget tiny is exceeded: the reaper runs at once"
    assert urged == [1]
    assert "budget:tiny" in " ".join(line.body["key"] for line in lab.session.ledger.events("alerts"))


def test_a_pass_that_a_budget_calls_is_due_at_once_and_stops(lab):
    """Every run of today would be hours away, and each of them is billed."""
    urged = []
    jobs = {one.name: one for one in watch_jobs(DAY, None, run_at_once=lambda: urged.append(1))}
    lab.up()
    lab.later(hours=2)
    jobs["pass"].work(lab.session)
    set_budget_document(lab.session, BudgetOptions("tiny", "0.01", "month", action="notify,stop"), overwrite=False)
    lab.later(minutes=2)
    assert jobs["pass"].due(lab.session) > lab.clock()
    jobs["budgets"].work(lab.session)
    assert urged == [1]
    assert jobs["pass"].due(lab.session) <= lab.clock()
    assert "the budget tiny is exceeded" in jobs["pass"].work(lab.session)
    assert lab.machines() == []
    assert jobs["pass"].due(lab.session) > lab.clock()


def test_a_pass_of_another_process_answers_the_call_of_a_budget(lab):
    jobs = {one.name: one for one in watch_jobs(DAY, None, run_at_once=lambda: None)}
    lab.up()
    lab.later(hours=2)
    set_budget_document(lab.session, BudgetOptions("tiny", "0.01", "month", action="notify,stop"), overwrite=False)
    jobs["budgets"].work(lab.session)
    lab.later(seconds=30)
    reap(lab.session, ReapOptions(cron=True))
    assert lab.machines() == []
    assert jobs["pass"].work(lab.session) == ""
    assert jobs["pass"].due(lab.session) > lab.clock()


def test_a_budget_calls_a_pass_for_a_held_machine_once_its_owner_was_warned(lab):
    urged = []
    machine = lab.up().machine
    lab.later(hours=2)
    set_hold(lab.session, machine, lab.clock() + DAY)
    set_budget_document(lab.session, BudgetOptions("tiny", "0.01", "month", action="notify,stop"), overwrite=False)
    for _ in range(MAX_WARNINGS):
        assert check_budgets(lab.session, lambda: urged.append(1)) == ""
        reap(lab.session, ReapOptions(cron=True))
        lab.later(minutes=10)
    assert urged == []
    assert check_budgets(lab.session, lambda: urged.append(1)) == "the budget tiny is exceeded: the reaper runs at once"
    assert urged == [1]


def test_a_budget_that_only_tells_calls_no_pass(lab):
    lab.up()
    lab.later(hours=2)
    set_budget_document(lab.session, BudgetOptions("tiny", "0.01", "month", action="notify"), overwrite=False)
    assert check_budgets(lab.session, lambda: pytest.fail("it was urged")) == ""


def test_an_alert_that_nobody_took_is_tried_again_and_said(make_lab):
    lab = make_lab('[alerts]\nto = ["json://127.0.0.1:9/"]\n')
    lab.up()
    lab.later(hours=2)
    set_budget_document(lab.session, BudgetOptions("tiny", "0.01", "month", action="notify"), overwrite=False)
    assert send_alerts(lab.session) == ""
    check_budgets(lab.session, lambda: None)
    for _ in range(2):
        assert send_alerts(lab.session).startswith("alerts were not delivered, and are tried again: json-")


def test_a_pass_that_another_one_is_making_is_left_to_it(lab):
    one = job("pass")
    with lab.opened().lock("watches", wait=False):
        assert one.work(lab.session) == ""
    with lab.opened().lock("reaper", wait=False):
        assert one.work(lab.session) == ""
    assert lab.session.ledger.last("reaper") is None


def test_a_pass_that_was_made_meanwhile_is_not_made_again(lab):
    one, body = job("pass"), {"ok": True, "ok_at": iso(lab.clock()), "sweep_at": None}
    lab.session.ledger.append([Draft("reap_finished", "reaper", body, lab.clock(), "by another")])
    assert one.work(lab.session) == ""
    assert lab.session.ledger.last("reaper").dedupe == "by another"
    lab.later(minutes=10)
    assert one.due(lab.session) == lab.clock()
    assert "a run over 0 machines" in one.work(lab.session)  # the first full sweep is told
    assert lab.session.ledger.last("reaper").body["sweep"]
    lab.later(minutes=10)
    assert one.work(lab.session) == ""
    assert not lab.session.ledger.last("reaper").body["sweep"]


def test_the_night_s_sweep_is_made_up_for_in_the_morning(lab):
    one = job("pass")
    one.work(lab.session)
    lab.later(hours=22)
    one.work(lab.session)
    assert lab.session.ledger.last("reaper").body["sweep"]
