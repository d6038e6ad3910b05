"""Budgets are set once, in the ledger or in a file, judged against it, and say what they would stop."""

from __future__ import annotations

import json
import os
import sys
import traceback
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from cloudgpu.cli.money.budget_text import check_text, set_text
from cloudgpu.control.budgets import admission
from cloudgpu.control.budgets.commands import (
    BudgetOptions,
    budget_of_options,
    check_budgets,
    has_exceeded_budget,
    list_budgets,
    remove_budget_of_name,
    set_budget_document,
)
from cloudgpu.control.budgets.store import budget_states, budgets, fallback_prices, find_budgets
from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.lifecycle.lifecycle import terminate_one
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.setup.ledger_admin import verify_document
from cloudgpu.core.budgets.budget import Action
from cloudgpu.core.events.log import Draft
from cloudgpu.core.launch.plan_cost import machine_of_launch
from cloudgpu.core.values.times import iso
from cloudgpu.errors import BudgetRefused, InvalidRequest
from cloudgpu.ledger.log.storage_errors import LedgerAway
from tests.control.conftest import Lab
from tests.postgres import postgres

__all__ = ["postgres"]

HOUR = timedelta(hours=1)


def asked(name="lab", amount="300", period="month", **words):
    return BudgetOptions(name, amount, period, **words)


def put(lab, *args, **words):
    anew = words.pop("anew", False)
    return set_budget_document(lab.session, asked(*args, **words), overwrite=anew)


def up(lab, **words):
    words = {"gpu": "v100", "lease": "4h", "renew_until": "4h", **words}
    return launch(lab.session, prepare(lab.session, parse_request(**words)), wait=False).machine


def write(lab, name, text):
    place = lab.session.home.policies / "budgets"
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{name}.yaml").write_text(text)


def test_a_budget_is_kept_as_it_was_set(lab):
    put(lab, scope="project=vision,owner=ada", thresholds="90,10", forecast="none", action="notify,stop",
        tz="Asia/Seoul", allow_override=False)  # fmt: skip
    (one,) = budgets(lab.opened())
    assert (one.scope.text, one.thresholds, one.forecast) == ("project=vision,owner=ada", (10, 90), None)
    assert (one.actions, one.tz, one.allow_override) == ({Action.NOTIFY, Action.STOP}, "Asia/Seoul", False)


@pytest.mark.parametrize(("provider", "kind", "by_size"), [("azure", "P10 128 GiB", False), ("vendor", "fast", True)])
def test_what_stands_in_for_a_missing_price_says_whether_it_is_for_each_gb(lab, provider, kind, by_size):
    price = fallback_prices(lab.session).attached_price(provider, "nowhere", kind, "disk")
    assert price.why.startswith("no price is known: the most expensive")
    assert (price.by_size, price.number(128)) == (by_size, 128 if by_size else 1)


def test_a_cluster_is_no_instance_of_a_budget_and_its_machines_are(lab):
    launch(lab.session, prepare(lab.session, parse_request(gpu="v100", name="train", nodes=2)), wait=False)
    with pytest.raises(InvalidRequest, match="train is a cluster") as refused:
        put(lab, scope="instance=train")
    assert "instance=train-0" in refused.value.next
    assert put(lab, scope="instance=train-1")["budget"]["scope"] == "instance=train-1"
    assert put(lab, "later", scope="instance=not-yet-there")["budget"]["scope"] == "instance=not-yet-there"


def test_a_single_machine_with_the_name_of_a_cluster_that_has_ended_gets_its_budget(lab):
    result = launch(lab.session, prepare(lab.session, parse_request(gpu="v100", name="train", nodes=2)), wait=False)
    for node in result.nodes:
        terminate_one(lab.session, node, why="done")
    up(lab, name="train")
    assert put(lab, scope="instance=train")["budget"]["scope"] == "instance=train"


def test_a_name_is_set_a_second_time_only_when_that_is_said(lab):
    put(lab)
    before = lab.session.ledger.head()
    with pytest.raises(InvalidRequest, match="is there already") as refused:
        put(lab, amount="500")
    assert "--replace" in refused.value.next
    assert lab.session.ledger.head() == before
    assert put(lab, amount="500", anew=True)["replaced"]["limit_usd"] == "300"
    assert [one.limit.dollars for one in budgets(lab.session)] == [500]


def test_a_removed_budget_holds_nothing_back(lab):
    put(lab, amount="0.01")
    remove_budget_of_name(lab.session, "lab")
    assert up(lab).launch_status == "made"
    with pytest.raises(InvalidRequest, match="No budget is called 'lab'"):
        remove_budget_of_name(lab.session, "lab")


def test_another_currency_keeps_the_rate_of_its_day(lab):
    with pytest.raises(InvalidRequest) as refused:
        put(lab, currency="KRW")
    assert (refused.value.exit_code, refused.value.field) == (2, "--currency")
    value = put(lab, amount="400000", currency="krw", rate="1385.2")["budget"]
    assert (value["currency"], value["amount"], value["per_usd"]) == ("KRW", "400000", "1385.2")
    assert value["rate_as_of"] == lab.clock().date().isoformat()
    assert Decimal(value["limit_usd"]) == round(Decimal(400000) / Decimal("1385.2"), 9)
    lab.later(days=30)
    (one,) = budgets(lab.opened())
    assert one.quoted_limit.currency.as_of.isoformat() == value["rate_as_of"], "never today's"


def test_the_rate_of_config_toml_is_recorded_with_its_day(lab):
    config = lab.home / "config.toml"
    rate = 'EUR = { per_usd = "0.92", as_of = 2026-11-01, source = "ECB" }'
    config.write_text(f"{config.read_text()}\n[currencies]\n{rate}\n")
    lab.session = lab.opened()
    put(lab, amount="92", currency="EUR")
    config.write_text(config.read_text().replace("0.92", "0.5"))
    (one,) = budgets(lab.opened())
    assert (one.limit.dollars, one.quoted_limit.currency.source) == (100, "ECB")


@pytest.mark.parametrize(
    ("words", "field", "says"),
    [
        ({"amount": "-3"}, "--amount", "not an amount above zero"),
        ({"amount": "0"}, "--amount", "not an amount above zero"),
        ({"amount": "0.0000000001"}, "--amount", "not an amount above zero"),
        ({"amount": "nan"}, "--amount", "not an amount above zero"),
        ({"amount": "0.000000001", "currency": "KRW", "rate": "1385"}, "--amount", "less than a billionth"),
        ({"amount": "free"}, "--amount", "not an amount above zero"),
        ({"amount": "1e3"}, "--amount", "not an amount above zero"),
        ({"amount": "1,000"}, "--amount", "not an amount above zero"),
        ({"period": "monthly"}, "--period", "did you mean 'month'"),
        ({"period": "rolling:0d"}, "--period", "not a period"),
        ({"period": "rolling:999d"}, "--period", "not a period"),
        ({"scope": "projct=x"}, "--scope", "did you mean 'project'"),
        ({"scope": "project"}, "--scope", "not KEY=VALUE"),
        ({"scope": "project=a,project=b"}, "--scope", "twice"),
        ({"scope": "project="}, "--scope", "one line"),
        ({"scope": "provider=fke"}, "--scope", "did you mean 'fake'"),
        ({"scope": "account=labb"}, "--scope", "did you mean 'lab'"),
        ({"thresholds": "50,-1"}, "--thresholds", "not a percentage"),
        ({"thresholds": "50,1001"}, "--thresholds", "not a percentage"),
        ({"thresholds": "half"}, "--thresholds", "not a percentage"),
        ({"forecast": "0"}, "--forecast", "not a percentage"),
        ({"action": "refse"}, "--action", "did you mean 'refuse'"),
        ({"currency": "WON", "rate": "3"}, "--currency", "not a currency"),
        ({"rate": "3"}, "--rate", "needs the currency"),
        ({"currency": "KRW", "rate": "-3"}, "--rate", "rate"),
        ({"currency": "KRW", "rate": "3", "rate_date": "2026-02-30"}, "--rate-date", "not a day"),
        ({"tz": "Seoul"}, "--tz", "did you mean 'Asia/Seoul'"),
        ({"name": "My Lab"}, "NAME", "cannot be a budget's name"),
    ],
)
def test_a_word_that_cannot_be_meant_changes_nothing(lab, words, field, says):
    before = lab.session.ledger.head()
    with pytest.raises(InvalidRequest) as refused:
        put(lab, **words)
    assert (refused.value.exit_code, refused.value.field) == (2, field)
    assert says in refused.value.message
    assert refused.value.next
    assert lab.session.ledger.head() == before


def test_files_and_the_ledger_hold_together(lab):
    write(lab, "tight", "amount: 5\nperiod: total\n")
    put(lab)
    assert {one.name for one in budgets(lab.session)} == {"lab", "tight"}
    with pytest.raises(BudgetRefused, match="Budget tight does not allow"):
        up(lab)


def test_a_name_in_both_is_refused_until_one_is_gone(lab):
    put(lab)
    write(lab, "lab", "amount: 5\nperiod: total\n")
    for act in (lambda: budgets(lab.session), lambda: up(lab)):
        with pytest.raises(InvalidRequest, match=r"in the ledger and in .*lab\.yaml"):
            act()
    remove_budget_of_name(lab.session, "lab")
    assert [one.limit.dollars for one in budgets(lab.session)] == [5]
    with pytest.raises(InvalidRequest, match="is in the file"):
        put(lab)


def test_how_a_budget_stands(lab):
    """The machine costs $3 an hour; what its disk, which has no price, is counted at, is the catalogue's matter."""
    put(lab, amount="40")
    up(lab)
    lab.later(hours=2)
    (one,) = budget_states(lab.session, find_budgets(lab.session, None))
    assert 6 < one.spent.dollars < Decimal("6.3")
    assert one.committed.dollars > 6
    assert 3 < one.burn.dollars < Decimal("3.15")
    left_h = (40 - one.spent.dollars) / one.burn.dollars
    assert one.exhausted_in.total_seconds() == pytest.approx(float(left_h) * 3600, abs=2)
    assert one.overshoot(HOUR / 4).dollars == pytest.approx(one.burn.dollars / 4)


def test_by_how_much_it_can_be_passed_is_said_beforehand(lab):
    """The interval times the burn rate at the counted prices: three dollars an hour and a disk."""
    up(lab)
    said = " ".join(set_text(put(lab, amount="40", action="stop")).split())
    assert "Checked every 15m, it can be exceeded by up to $0.76 at what runs now" in said
    said = " ".join(check_text(check_budgets(lab.session, None, every=HOUR), "1h").split())
    assert "Checked every 1h, it can be exceeded by up to $3.0" in said
    assert "can be exceeded" not in set_text(put(lab, name="mild", amount="40"))


def test_thresholds_are_told_once_each_and_again_after_they_fell_back(lab):
    put(lab, amount="12", period="day", action="notify", forecast="none")
    up(lab)
    today = f"{lab.session.clock():%Y-%m-%d}"
    lab.later(hours=2)
    assert check_budgets(lab.session, None)["alerts"]["raised"] == [f"budget:lab:threshold:50:{today}"]
    assert check_budgets(lab.session, None)["alerts"]["raised"] == []
    lab.later(hours=2)
    document = check_budgets(lab.session, None)
    wanted = [f"budget:lab:threshold:{percent}:{today}" for percent in (80, 100)]
    assert document["alerts"]["raised"][:2] == wanted
    assert document["exhausted"] == ["lab"]
    assert not has_exceeded_budget(document), "it only notifies"
    lab.later(hours=24)
    assert set(check_budgets(lab.session, None)["alerts"]["cleared"]) >= {f"budget:lab:threshold:50:{today}"}


def test_a_day_whose_begin_nobody_looked_at_is_told_of_though_the_day_before_was(lab):
    put(lab, amount="2", period="day", action="notify", forecast="none", thresholds="100")
    up(lab, lease="60h", renew_until="90h")
    lab.later(hours=2)
    before = check_budgets(lab.session, None)["alerts"]["raised"]
    lab.later(hours=23)  # at once spent again
    alerts = check_budgets(lab.session, None)["alerts"]
    assert (alerts["cleared"], len(alerts["raised"])) == (before, 1)
    assert alerts["raised"] != before


def test_a_settled_ledger_says_that_budgets_may_have_been_lost(lab, tmp_path):
    put(lab, name="early")
    file, copy = Path(lab.session.ledger.location), tmp_path / "copy.db"
    lab.session.ledger.copy_to(copy)
    put(lab, name="late")
    lab.session.ledger.close()
    for beside in file.parent.glob(f"{file.name}-*"):
        beside.unlink()
    copy.replace(file)
    lab.session = lab.opened()
    assert verify_document(lab.session, agree=lab.said.append)["settled"]
    assert [one["name"] for one in list_budgets(lab.session)["budgets"]] == ["early"]
    assert "Budgets that were set" in lab.said[-1]


def test_a_forecast_is_told_before_the_money_is_spent(lab):
    put(lab, amount="11", action="notify", thresholds="none", forecast="100")
    up(lab)
    (key, *_) = check_budgets(lab.session, None)["alerts"]["raised"]
    assert key == f"budget:lab:forecast:100:{lab.session.clock():%Y-%m}-01"


def test_a_passed_budget_that_stops_names_the_newest_first_and_warns_held_ones(lab):
    first = up(lab, name="first")
    lab.later(minutes=10)
    second = up(lab, name="second")
    spot = up(lab, name="third", spot=True)
    put(lab, amount="1", action="stop")
    lab.later(hours=1)
    lab.session.ledger.append(
        [Draft("hold_set", first.id, {"until": iso(lab.clock() + HOUR), "why": "asked"}, lab.clock(), "hold")]
    )
    document = check_budgets(lab.session, None)
    assert [(one["name"], one["do"]) for one in document["stops"]][-1] == ("first", "warn")
    assert {one["name"]: one["do"] for one in document["stops"]} == {"second": "stop", "third": "park", "first": "warn"}
    assert has_exceeded_budget(document)
    assert {second.id, spot.id} == {one["machine"] for one in document["stops"][:2]}
    assert len(lab.machines()) == 3, "check decides, and carries nothing out"


class TeamLab(Lab):
    """A user whose ledger is a team's."""

    def __init__(self, tmp_path, monkeypatch, url):
        self.url = url
        super().__init__(tmp_path, monkeypatch)

    def opened(self):
        environ = {"CLOUDGPU_HOME": str(self.home), "USER": "ada", "CLOUDGPU_LEDGER": self.url}
        session = open_session(environ, clock=self.clock, tell=self.said.append)
        session.pause = self.clock.advance
        return session


def intent(lab, number):
    """What a launch of $3 an hour for four hours would write; a real one's first line, under another name."""
    (line,) = [line for line in lab.session.ledger.events() if line.kind == "launch_intended"][:1]
    body = json.loads(json.dumps(dict(line.body))) | {"name": f"m{number}", "key": f"k{number}", "token": f"t{number}"}
    return Draft("launch_intended", f"cg-{number:016x}", body, lab.clock(), f"intent:t{number}")


def attempt(environ, clock, draft, gate):
    """One process of a user: wait for the others, then ask for a place; return 0 where it was admitted, 3 if not."""
    session = open_session(environ, clock=clock, tell=lambda _said: None)
    os.read(gate, 1)
    way = admission.Remedy(str)

    def decision(view):
        return [draft, *admission.admit(session, view, machine_of_launch(draft), None)]

    while True:
        try:
            admission.append_if_admitted(session, decision, way)
        except BudgetRefused:
            return 3
        except LedgerAway as away:  # 49 others held the lock for longer than one waits: its user asks again
            if not away.held:
                raise
            continue
        return 0


def race(lab, environ_of, number=50):
    """How many of so many processes, that begin at the same moment, were let through and refused."""
    gate, opened = os.pipe()
    children = []
    for child in range(number):
        draft = intent(lab, child)
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                os.close(opened)
                code = attempt(environ_of(child), lab.clock, draft, gate)
            except BaseException:  # noqa: BLE001  (a child never goes on as the test)
                traceback.print_exc(file=sys.__stderr__)
            os._exit(code)
        children.append(pid)
    os.close(opened)
    os.close(gate)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    return codes.count(0), codes.count(3)


def room_for(lab, number):
    """Set a budget that carries so many launches more beside the first, and part of another."""
    up(lab, name="first")
    put(lab, amount="1000", period="total")
    (one,) = budget_states(lab.session, find_budgets(lab.session, "lab"))
    each = one.committed.dollars
    put(lab, amount=str(round(each * (number + 1) + each / 2, 6)), period="total", anew=True)


@pytest.mark.parametrize("number", [16, pytest.param(50, marks=pytest.mark.soak)])
def test_launches_at_the_same_moment_let_through_exactly_what_fits(lab, number):
    room_for(lab, 6)
    environ = {"CLOUDGPU_HOME": str(lab.home), "USER": "ada"}
    lab.session.ledger.close()
    assert race(lab, lambda _child: environ, number) == (6, number - 6)


@pytest.mark.soak
def test_fifty_clients_of_one_postgresql_ledger_let_through_exactly_what_fits(tmp_path, monkeypatch, postgres):
    url = postgres.schema()
    lab = TeamLab(tmp_path, monkeypatch, url)
    room_for(lab, 12)
    lab.session.ledger.close()

    def environ(child):
        home = tmp_path / f"laptop-{child}"
        home.mkdir()
        (home / "config.toml").write_text((lab.home / "config.toml").read_text())
        return {"CLOUDGPU_HOME": str(home), "USER": f"user-{child}", "CLOUDGPU_LEDGER": url}

    assert race(lab, environ) == (12, 38)


def test_nothing_is_asked_where_no_budget_is(lab, monkeypatch):
    monkeypatch.setattr(admission, "admission_request", None)  # it would fail if it were called
    assert up(lab).launch_status == "made"


def test_the_amounts_of_a_budget_are_before_credits_and_say_what_is_not_known(lab):
    put(lab)
    up(lab)
    (one,) = budget_states(lab.session, find_budgets(lab.session, None))
    assert "times 1.5" in one.price_assumptions[0]
    assert budget_of_options(lab.session, asked("other")).refuses


@pytest.mark.parametrize("key", ["name", "amount", "period", "scope"])
def test_a_text_that_a_budget_needs_is_not_none(lab, key):
    with pytest.raises(InvalidRequest, match="None is not text"):
        budget_of_options(lab.session, asked(**{key: None}))


@pytest.mark.parametrize("word", ["no", "false", 0, None])
def test_whether_a_budget_may_be_overridden_is_no_text_that_counts_as_true(lab, word):
    with pytest.raises(InvalidRequest, match="allow_override takes True or False"):
        budget_of_options(lab.session, asked(allow_override=word))


@pytest.mark.parametrize(("key", "field"), [("name", "NAME"), ("amount", "--amount"), ("period", "--period")])
def test_what_the_library_gets_that_is_not_text_is_refused_by_its_name(lab, key, field):
    with pytest.raises(InvalidRequest, match=f"5 is not text, and {field} takes text") as refused:
        budget_of_options(lab.session, asked(**{key: 5}))
    assert refused.value.field == field
