"""A launch that the account's credit cannot carry to its lease's end is refused; what is not known is not zero."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal

import pytest

from cloudgpu.cli.app import run
from cloudgpu.control.budgets.admission import credit_checks
from cloudgpu.control.clusters.lease import extend_all, hold_all, plan_extension_of_all
from cloudgpu.control.inventory.listing import list_machines
from cloudgpu.control.launch.budget_preview import build_plan_document, check_budgets
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.lifecycle.lease import extend, plan_extension
from cloudgpu.control.lifecycle.lifecycle import stop
from cloudgpu.control.lifecycle.start import new_lease, start
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.control.session.last_run import read_last_run
from cloudgpu.errors import BudgetRefused, ProviderUnavailable

LEASE = timedelta(hours=8)


@pytest.fixture
def paid(make_lab):
    """A lab whose account is paid in advance, with plenty."""
    return make_lab('credit = "100000"\n')


def hourly(lab, **more):
    return Decimal(lab.prepare(**more).plan.offer.price.per_hour.dollars)


def left(lab, usd):
    lab.cloud.set_credit(str(usd))


def refused(lab, **more):
    with pytest.raises(BudgetRefused) as error:
        lab.up(**more)
    return error.value


def test_a_launch_is_refused_by_a_dollar_and_admitted_by_what_it_needs(paid):
    price, before = hourly(paid), paid.machines()
    left(paid, price * 8 - 1)
    error = refused(paid)
    assert error.exit_code == 3
    assert (error.field, error.value) == ("credit", "lab")
    assert "$1.00 is missing" in error.message or Decimal(error.sums["missing"]) >= 1
    assert "https://fake.example/billing" in error.next
    assert (paid.machines(), paid.session.ledger.machines()) == (before, [])
    left(paid, price * 8 + 5)  # its disk costs, too
    paid.up()
    assert len(paid.machines()) == 1


def test_what_runs_already_is_counted_to_the_end_of_the_new_lease(paid):
    price = hourly(paid)
    paid.up(name="fox")
    left(paid, price * 8 + 5)
    error = refused(paid, name="hen")
    assert "covers hen and what runs there for 4h" in error.message
    left(paid, price * 16 + 5)
    paid.up(name="hen")


def test_a_cluster_is_counted_whole(paid):
    left(paid, hourly(paid) * 8 * 3)
    refused(paid, nodes=4, name="train")
    assert paid.session.ledger.machines() == []


def test_the_plan_says_how_long_it_carries_and_the_check_refuses_before_the_question(paid):
    left(paid, hourly(paid) * 4)
    prepared = paid.prepare()
    (note,) = [
        one for one in build_plan_document(paid.session, prepared)["plan"]["notes"] if "credit of account lab" in one
    ]
    assert ", for 3h 59m at" in note or ", for 4h at" in note
    before = paid.cloud.calls["credit"]
    with pytest.raises(BudgetRefused):
        check_budgets(paid.session, prepared)
    assert paid.cloud.calls["credit"] == before  # read once for a plan


def test_credit_that_cannot_be_read_is_said_and_refuses_nothing(paid):
    left(paid, 0)
    prepared = paid.prepare()
    paid.cloud.fail_next("credit", ProviderUnavailable("it timed out", field="provider"), times=2)
    (note,) = [
        one for one in build_plan_document(paid.session, prepared)["plan"]["notes"] if "credit of account lab" in one
    ]
    assert note.endswith("could not be read, so whether it is enough is not known: it timed out")
    launch(paid.session, prepared, wait=False)
    assert len(paid.machines()) == 1


def test_two_launches_at_once_do_not_both_spend_the_last_credit(paid):
    left(paid, hourly(paid) * 12)
    first, second = paid.prepare(name="fox"), paid.prepare(name="hen")
    launch(paid.session, first, wait=False)
    with pytest.raises(BudgetRefused):
        launch(paid.opened(), second, wait=False)
    assert len(paid.machines()) == 1


def test_a_stopped_machine_starts_only_where_the_credit_carries_its_new_lease(paid):
    row = stop(paid.session, paid.up(name="fox").machine, why="test")
    left(paid, hourly(paid))
    with pytest.raises(BudgetRefused, match="The credit of account lab"):
        start(paid.session, row, new_lease(paid.session, row, None))
    assert paid.machines() == []
    left(paid, hourly(paid) * 9)
    start(paid.session, row, new_lease(paid.session, row, None))


def test_an_extension_counts_what_runs_once_whoever_names_its_price(paid):
    """The fake's own word of what is spent an hour has the machine in it that is extended."""
    row = paid.up(name="fox").machine
    left(paid, hourly(paid) * Decimal("12.5"))
    with pytest.raises(BudgetRefused, match="of its new lease"):
        extend(paid.session, plan_extension(paid.session, row, timedelta(hours=5)))
    extend(paid.session, plan_extension(paid.session, row, timedelta(hours=4)))


def test_a_cluster_is_extended_and_held_only_where_the_credit_carries_all_of_it(paid):
    paid.up(nodes=2, name="train")
    rows, until = paid.rows(), paid.session.clock() + timedelta(hours=12)
    left(paid, hourly(paid) * 12 + 5)
    plan = plan_extension_of_all(paid.session, rows, timedelta(hours=4))
    with pytest.raises(BudgetRefused, match="covers train and what runs there for 6h"):
        extend_all(paid.session, plan)
    with pytest.raises(BudgetRefused, match="of its hold"):
        hold_all(paid.session, rows, until)
    assert {row.expires for row in paid.rows()} == {rows[0].expires}
    left(paid, hourly(paid) * 24 + 10)
    assert not extend_all(paid.session, plan).errors
    assert not hold_all(paid.session, rows, until).errors


def test_an_account_that_is_not_paid_in_advance_is_asked_nothing(lab):
    lab.up()
    reap(lab.session, ReapOptions())
    assert list(credit_checks(lab.session, "lab")) == []
    assert list_machines(lab.session)["credits"] == []


@pytest.mark.soak
def test_the_alert_comes_a_day_before_zero_once_per_crossing(make_lab, web):
    lab = make_lab(f'credit = "100000"\n[alerts]\nto = ["json://{web.place}/owner"]\n')
    lab.up()
    price = hourly(lab)

    def passed(hours):
        left(lab, price * hours)
        lab.later(minutes=10)
        reap(lab.session, ReapOptions())
        return len([body for _, _, body in web.got if b"The credit of lab ends in" in body])

    assert [passed(hours) for hours in (40, 20, 19, 18, 60, 12)] == [0, 1, 1, 1, 1, 2]
    (text, *_) = [body.decode() for _, _, body in web.got if b"credit" in body]
    assert "At zero fake deletes the data of this account" in text


def test_a_run_that_cannot_read_the_credit_neither_raises_nor_clears_the_alert(make_lab):
    lab = make_lab('credit = "100000"\n')
    lab.up()
    left(lab, hourly(lab) * 2)
    reap(lab.session, ReapOptions())
    lab.cloud.fail_next("credit", ProviderUnavailable("it timed out", field="provider"))
    lab.later(minutes=10)
    reap(lab.session, ReapOptions())
    kinds = [line.kind for line in lab.session.ledger.events("alerts") if "credit" in str(line.body.get("key"))]
    assert kinds == ["alert_raised"]
    assert len(read_last_run(lab.session.ledger).credits) == 1  # what was read before stands, with its time


def test_ls_and_doctor_say_what_is_left(paid, monkeypatch, capsys):
    paid.up(name="fox")
    left(paid, hourly(paid) * 10)
    reap(paid.session, ReapOptions())
    (said,) = list_machines(paid.session)["credits"]
    assert (said["account"], said["page"]) == ("lab", "https://fake.example/billing")
    assert Decimal(said["left_usd"]) == hourly(paid) * 10
    (check,) = credit_checks(paid.session, "lab")
    assert str(check.verdict) == "warn"
    assert "at zero its data is deleted" in check.message
    monkeypatch.setenv("CLOUDGPU_HOME", str(paid.home))
    assert run(["ls"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Credit of lab: $" in out
    assert "and its data is deleted then." in out
    assert run(["ls", "-o", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["credits"]) == 1
