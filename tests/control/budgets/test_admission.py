"""up, start, extend and every further offer are held against the budgets, in the transaction that records them."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal

import pytest

from cloudgpu.control.budgets.commands import BudgetOptions, budget_of_options
from cloudgpu.control.budgets.store import budget_states, find_budgets, set_budget
from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.launch.budget_preview import build_plan_document, check_budgets
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.launch.restore import plan_restore, restore_machine, start_machine
from cloudgpu.control.lifecycle.lease import extend, plan_extension, set_lease
from cloudgpu.control.lifecycle.lifecycle import stop
from cloudgpu.core.events.log import Draft
from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.model.instances import TAG_EXPIRES, TAG_RENEW_UNTIL
from cloudgpu.core.values.naming import lock_name
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import BudgetRefused, InvalidRequest, LedgerUnavailable, NoCapacity, ProviderUnavailable

HOUR = timedelta(hours=1)


def budget(lab, amount, name="lab", **words):
    words.setdefault("period", "total")
    set_budget(lab.session, budget_of_options(lab.session, BudgetOptions(name, str(amount), **words)), overwrite=True)


def up(lab, *, session=None, **asked):
    session = session or lab.session
    asked = {"gpu": "v100", "lease": "4h", "renew_until": "4h", **asked}
    return launch(session, prepare(session, parse_request(**asked)), wait=False).machine


def lines(lab, kind):
    return [line for line in lab.session.ledger.events("budgets") if line.kind == kind]


@pytest.fixture
def price():
    """What an hour of the machine of these tests costs on demand; its disk comes on top."""
    return Decimal(3)


def test_a_launch_reads_no_whole_lab_under_the_ledgers_lock(lab, price, monkeypatch):
    budget(lab, price * 100)
    up(lab, name="quiet-owl")
    ledger, writing = lab.session.ledger, []
    decide, kinds = ledger.decide, ("machines", "billable_machines", "present_machines", "ended_usages")

    def watched(decision):
        writing.append(True)
        try:
            return decide(decision)
        finally:
            writing.clear()

    def refused(name, read):
        def call(*args, **more):
            assert not writing or more.get("unpriced"), name
            return read(*args, **more)

        return call

    monkeypatch.setattr(ledger, "decide", watched)
    for name in kinds:
        monkeypatch.setattr(ledger, name, refused(name, getattr(ledger, name)))
    up(lab, name="loud-owl")
    with pytest.raises(InvalidRequest):
        up(lab, name="quiet-owl", new=True)


def test_a_launch_that_a_budget_does_not_carry_is_refused_and_nothing_is_written_or_sent(lab, price):
    budget(lab, price * 2)
    before = lab.session.ledger.head()[0]
    with pytest.raises(BudgetRefused) as refused:
        up(lab, name="quiet-owl")
    fault = refused.value
    assert (fault.exit_code, fault.field, fault.value) == (3, "budget", "lab")
    assert "Budget lab does not allow quiet-owl until" in fault.message
    assert Decimal(fault.sums["total"]) > Decimal(fault.sums["limit"])
    parts = sum(Decimal(fault.sums[part]) for part in ("spent", "running", "wanted"))
    assert parts == Decimal(fault.sums["total"])
    assert lab.machines() == []
    assert not list(lab.session.home.attempts.glob("*"))
    assert not lab.session.ledger.machines()
    written = [line.kind for line in lab.session.ledger.events() if line.seq > before]
    assert set(written) == {"account_synced"}, "the look before it is all"


def test_what_the_refusal_says_would_fit_does(lab, price):
    budget(lab, price * 2)
    with pytest.raises(BudgetRefused) as refused:
        up(lab)
    until = from_iso(refused.value.sums["renew_until"])
    minutes = (until - lab.session.clock()) // timedelta(minutes=1)
    assert f"--lease {minutes // 60}h{minutes % 60}m" in refused.value.next or "--lease 1h" in refused.value.next
    up(lab, lease=f"{minutes}m", renew_until=f"{minutes}m")
    with pytest.raises(BudgetRefused):
        up(lab, new=True, lease="1m", renew_until="1m")


def test_a_reservation_counts_until_the_machine_ends(lab, price):
    budget(lab, price * 9)
    up(lab)
    with pytest.raises(BudgetRefused, match="for running machines, waiting jobs and retained resources"):
        up(lab, new=True, renew_until="8h")
    up(lab, new=True)


def test_a_reason_lets_it_past_and_is_written_down_with_the_amount(lab, price):
    budget(lab, price * 2)
    row = up(lab, override="the deadline is tomorrow")
    (line,) = lines(lab, "budget_overridden")
    assert (line.body["machine"], line.body["reason"]) == (row.id, "the deadline is tomorrow")
    assert line.body["passed"][0]["nanos"] >= int(price * 2 * 10**9) - 1000
    assert any("Budget lab overridden" in said for said in lab.said)


def test_a_budget_that_does_not_let_itself_be_overridden_refuses_all_the_same(lab, price):
    budget(lab, price * 2, allow_override=False)
    with pytest.raises(BudgetRefused, match="does not allow") as refused:
        up(lab, override="please")
    assert "cannot be overridden" in refused.value.next
    assert not lines(lab, "budget_overridden")


def test_an_override_without_a_reason_is_no_override(lab, price):
    budget(lab, price * 2)
    with pytest.raises(InvalidRequest) as refused:
        up(lab, override="  ")
    assert refused.value.field == "--override"


def test_a_budget_that_only_notifies_refuses_nothing(lab, price):
    budget(lab, price, action="notify")
    assert up(lab).launch_status == "made"


def test_a_budget_of_another_project_is_not_asked(lab, price):
    budget(lab, price, scope="project=other")
    assert up(lab).launch_status == "made"
    with pytest.raises(BudgetRefused):
        up(lab, project="other", new=True)


def test_every_further_offer_asks_again(lab):
    """The cheapest type has no capacity anywhere; the next, dearer one is held against the budget before it is sent."""
    budget(lab, 5)
    lab.cloud.fail_next("launch", NoCapacity("no room"), times=4)
    with pytest.raises(BudgetRefused, match=r"\$12\.\d\d for .* = "):
        up(lab, gpu=None)
    assert lab.cloud.calls["launch"] == 4
    assert lab.machines() == []


def test_the_plan_says_how_it_fits_and_a_dry_run_is_refused_alike(lab, price):
    budget(lab, price * 2)
    prepared = prepare(lab.session, parse_request(gpu="v100", lease="4h", renew_until="4h"))
    (one,) = build_plan_document(lab.session, prepared)["plan"]["budgets"]
    assert (one["name"], one["fits"], one["refuses"]) == ("lab", False, True)
    assert Decimal(one["remaining_usd"]) < 0
    with pytest.raises(BudgetRefused):
        check_budgets(lab.session, prepared)
    budget(lab, price * 20)
    (one,) = build_plan_document(lab.session, prepared)["plan"]["budgets"]
    assert one["fits"]
    check_budgets(lab.session, prepared)


def test_a_plan_names_what_has_no_price_and_its_budget_says_what_it_counts_instead(lab, price):
    budget(lab, price * 200)
    wish = parse_request(gpu="v100", lease="4h", renew_until="40h", disk=100)
    shown = build_plan_document(lab.session, prepare(lab.session, wish))["plan"]
    assert Decimal(shown["cost_to_renew_until_usd"]) == price * 40
    assert shown["unpriced"] == ["system disk of 100 GB"]
    (one,) = shown["budgets"]
    assert Decimal(one["requested_usd"]) > price * 40 + 1
    assert "system disk of 100 GB" in one["assumed"][0]


def test_spot_is_reserved_at_its_highest_price_else_on_demand(lab, price):
    budget(lab, price * 5)
    prepared = prepare(lab.session, parse_request(gpu="v100", spot=True, lease="4h", renew_until="4h"))
    (one,) = build_plan_document(lab.session, prepared)["plan"]["budgets"]
    assert Decimal(one["requested_usd"]) >= price * 4
    spot = prepared.plan.offer.price.per_hour.dollars
    capped = prepare(
        lab.session, parse_request(gpu="v100", spot=True, max_price=str(spot), lease="4h", renew_until="4h")
    )
    (one,) = build_plan_document(lab.session, capped)["plan"]["budgets"]
    assert Decimal(one["requested_usd"]) < price * 4


def test_a_refused_spot_machine_is_told_at_which_price_it_was_counted(lab, price):
    budget(lab, price * 2)
    with pytest.raises(BudgetRefused) as refused:
        up(lab, spot=True, lease="4h", renew_until="4h")
    assert f"at the on-demand price, ${price:.4f} an hour; --max-price limits that." in refused.value.message
    with pytest.raises(BudgetRefused) as refused:
        up(lab, spot=True, max_price=str(price), lease="4h", renew_until="4h")
    assert f"at its --max-price, ${price:.4f} an hour." in refused.value.message


def test_a_start_is_admitted_at_its_whole_new_life(lab, price):
    row = up(lab)
    row = stop(lab.session, row, why="test")
    budget(lab, price * 3)
    with pytest.raises(BudgetRefused) as refused:
        start_machine(lab.session, row, None, wait=False)
    assert f"cloudgpu start {row.name} --lease" in refused.value.next
    assert lab.session.ledger.machine(row.id).pending_action != "start"
    assert lab.machines() == []
    again = start_machine(lab.session, row, HOUR, renewable_for=HOUR, wait=False)
    assert again.state in ("running", "pending")


def test_a_start_without_capacity_gives_its_reservation_back(lab, price):
    row = stop(lab.session, up(lab), why="test")
    budget(lab, price * 6)
    lab.cloud.exhaust(row.zone)
    with pytest.raises(NoCapacity):
        start_machine(lab.session, row, None, wait=False)
    (one,) = budget_states(lab.session, find_budgets(lab.session, "lab"))
    assert one.committed.dollars < price


def test_a_start_that_nobody_answered_holds_money_back_until_it_is_stopped(lab, price):
    row = stop(lab.session, up(lab), why="test")
    budget(lab, price * 6)
    lab.cloud.fail_next("start", ProviderUnavailable("the network is down"))
    with pytest.raises(ProviderUnavailable, match="network"):
        start_machine(lab.session, row, None, wait=False)
    (one,) = budget_states(lab.session, find_budgets(lab.session, "lab"))
    assert one.committed.dollars > price
    assert stop(lab.session, row, why="test").pending_action is None
    (one,) = budget_states(lab.session, find_budgets(lab.session, "lab"))
    assert one.committed.dollars < price


@pytest.mark.parametrize("killed_after", ["the record", "the cloud has taken it"])
def test_a_look_frees_what_a_killed_start_holds_back_only_where_it_has_surely_not_begun(lab, price, killed_after):
    row = stop(lab.session, up(lab), why="test")
    budget(lab, price * 90)

    def killed():
        raise KeyboardInterrupt

    now_or_later = {"the record": killed, "the cloud has taken it": lambda: lab.cloud.fail_next("get", killed)}
    lab.cloud.fail_next("start", now_or_later[killed_after])
    with pytest.raises(KeyboardInterrupt):
        start_machine(lab.session, row, HOUR, renewable_for=HOUR * 9, wait=False)

    def counted():
        (one,) = budget_states(lab.session, find_budgets(lab.session, "lab"))
        return one.committed.dollars

    lab.later(minutes=59)
    sync_all(lab.session)
    assert counted() > price * 7
    lab.later(minutes=1, seconds=1)
    with lab.session.lock(lock_name(row.key), wait=False):  # as a start that is at it
        sync_all(lab.session)
    assert counted() > price * 7
    sync_all(lab.session)
    assert (counted() > price * 7) is (killed_after != "the record")


def test_a_comeback_is_a_launch_that_is_asked_too(lab, price):
    row = stop(lab.session, up(lab, spot=True), why="test")
    budget(lab, price * 2)
    with pytest.raises(BudgetRefused):
        restore_machine(lab.session, plan_restore(lab.session, row, None), wait=False)
    assert lab.session.ledger.machine(row.id).retained, "its image is kept"
    back = restore_machine(lab.session, plan_restore(lab.session, row, HOUR, renewable_for=HOUR), wait=False)
    assert back.terminated_at is None


@pytest.mark.parametrize("override", [None, "the deadline is tomorrow"])
def test_a_machine_is_not_ended_for_a_move_that_a_budget_does_not_carry(lab, price, override):
    row = stop(lab.session, up(lab), why="test")
    budget(lab, price * 2, allow_override=False)
    with pytest.raises(BudgetRefused) as refused:
        start_machine(lab.session, row, None, wait=False, move_it=True, override=override)
    assert f"cloudgpu start {row.name} --move --lease" in refused.value.next
    now = lab.session.ledger.machine(row.id)
    assert (now.state, now.terminated_at, now.retained) == ("stopped", None, ())
    assert start_machine(lab.session, row, HOUR, renewable_for=HOUR, wait=False, move_it=True).state in (
        "running",
        "pending",
    )


def test_an_extension_past_renew_until_is_a_new_admission(lab, price):
    row = up(lab, lease="1h", renew_until="2h")
    budget(lab, price * 3)
    row = extend(lab.session, plan_extension(lab.session, row, HOUR))
    with pytest.raises(BudgetRefused) as refused:
        extend(lab.session, plan_extension(lab.session, row, 3 * HOUR))
    assert f"cloudgpu extend {row.name} " in refused.value.next
    assert lab.session.ledger.machine(row.id).renew_until == row.renew_until
    by = refused.value.next.split(f"extend {row.name} ")[1].split(".")[0]
    assert by.endswith("m")
    assert extend(lab.session, plan_extension(lab.session, row, HOUR / 2)).renew_until > row.renew_until


def test_an_extension_past_renew_until_waits_for_a_ledger_that_is_in_doubt(lab):
    row = up(lab, lease="1h", renew_until="8h")
    doubt = Draft("ledger_doubted", "ledger", {"why": "It is shorter than it was.", "seq": 99}, lab.clock(), "doubt")
    lab.session.ledger.append([doubt])
    with pytest.raises(LedgerUnavailable, match="may be incomplete"):
        extend(lab.session, plan_extension(lab.session, row, 30 * HOUR))
    assert lab.session.ledger.machine(row.id).renew_until == row.renew_until
    assert extend(lab.session, plan_extension(lab.session, row, HOUR)).expires > row.expires


def test_an_extension_that_can_be_overridden_is(lab, price):
    row = up(lab, lease="1h", renew_until="2h")
    budget(lab, price)
    row = extend(lab.session, plan_extension(lab.session, row, 3 * HOUR), override="one more epoch")
    assert lines(lab, "budget_overridden")[0].body["name"] == row.name


@pytest.mark.parametrize("fault", [InvalidRequest("no such tag"), ProviderUnavailable("the network is down")])
def test_a_lease_that_the_machine_did_not_take_is_put_right(lab, fault):
    row = up(lab)
    lab.later(minutes=1)
    lab.cloud.fail_next("tag", fault)
    with pytest.raises(type(fault)):
        extend(lab.session, plan_extension(lab.session, row, 3 * HOUR))
    known = lab.session.ledger.machine(row.id)
    assert (known.expires, known.renew_until) == (row.expires, row.renew_until)


def test_a_machine_without_a_lease_that_did_not_take_one_has_none(lab):
    row = up(lab)
    body = {"expires": None, "renew_until": None, "why": "as one that was found without its tags"}
    lab.session.ledger.append([Draft("lease_set", row.id, body, lab.clock(), "none")])
    kept = json.loads((lab.home.parent / "cloud.json").read_text())
    for tag in (TAG_EXPIRES, TAG_RENEW_UNTIL):
        kept["machines"][0]["tags"].pop(tag)
    (lab.home.parent / "cloud.json").write_text(json.dumps(kept))
    lab.cloud.fail_next("tag", InvalidRequest("no such tag"))
    row = lab.session.ledger.machine(row.id)
    with pytest.raises(InvalidRequest):
        set_lease(lab.session, row, Lease(lab.clock() + HOUR, lab.clock() + HOUR), "extend")
    known = lab.session.ledger.machine(row.id)
    assert (known.expires, known.renew_until) == (None, None)


def test_an_interrupted_launch_is_replayed_under_its_own_reservation(lab, price):
    budget(lab, price * Decimal("4.5"))
    lab.cloud.lose_reply("launch")
    with pytest.raises(ProviderUnavailable):
        up(lab)
    with pytest.raises(BudgetRefused):
        up(lab, name="another")
    lab.session = lab.opened()
    assert up(lab).launch_status == "made"
    assert len(lab.machines()) == 1


def test_a_replay_with_a_longer_life_is_admitted_for_the_rest(lab, price):
    budget(lab, price * Decimal("4.5"))
    lab.cloud.lose_reply("launch")
    with pytest.raises(ProviderUnavailable):
        up(lab)
    lab.session = lab.opened()
    with pytest.raises(BudgetRefused):
        up(lab, renew_until="9h")
    (row,) = lab.rows()
    assert from_iso(row.renew_until) - lab.session.clock() <= 4 * HOUR


def test_an_old_view_of_all_accounts_is_refreshed_first(lab, price):
    up(lab)
    budget(lab, price * 100)
    lab.later(minutes=20)
    before = lab.cloud.calls["list"]
    up(lab, new=True)
    assert lab.cloud.calls["list"] == before + 1
    up(lab, new=True)
    assert lab.cloud.calls["list"] == before + 1, "a view of just now is not looked at again"
