"""A new name for an account: its machines are found under it, and nobody renames one account onto another."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cloudgpu.control.budgets.commands import BudgetOptions, budget_of_options, list_budgets
from cloudgpu.control.budgets.store import budgets, set_budget
from cloudgpu.control.inventory.listing import list_machines
from cloudgpu.control.lifecycle.lifecycle import terminate_one
from cloudgpu.control.session.accounts import used_accounts
from cloudgpu.control.setup.doctor import examine
from cloudgpu.control.setup.guards import guard_checks
from cloudgpu.control.setup.rename_account import document, plan, rename
from cloudgpu.control.setup.retire_account import plan as farewell
from cloudgpu.core.events.account_names import CurrentNames, current_names
from cloudgpu.core.events.general_events import account_renamed
from cloudgpu.core.events.log import Draft, Event
from cloudgpu.core.model.checks import Verdict
from cloudgpu.core.values.times import iso
from cloudgpu.errors import InvalidRequest, NotReachableHere, ProviderUnavailable
from tests.control.setup.test_retire_account import Two
from tests.core.events.test_metering import launch

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Renamed(Two):
    """A user with an account `old`, which becomes `new`."""

    @property
    def new_table(self):
        return self.table.replace("accounts.old", "accounts.new")

    def rename(self, old="old", new="new"):
        made = plan(self.session, self.environ, old, new)
        rename(self.session, made)
        self.session = self.opened()
        return document(made)

    def refused(self, old, new):
        with pytest.raises(InvalidRequest) as caught:
            plan(self.session, self.environ, old, new)
        assert (caught.value.field, list(self.session.ledger.events("accounts"))) == ("--rename", [])
        assert caught.value.next
        return caught.value.message


@pytest.fixture
def two(tmp_path, monkeypatch):
    return Renamed(tmp_path, monkeypatch)


def test_an_account_of_the_file_gets_its_new_name_there_and_its_machines_are_found(two):
    two.file.write_text(two.file.read_text().replace('account = "lab"', 'account = "old"'))
    two.session = two.opened()
    row = two.machine()
    set_budget(two.session, budget_of_options(two.session, BudgetOptions("mine", "5", "month", scope="account=old")))
    before = two.file.read_text()
    said = two.rename()
    assert two.file.read_text() == before.replace("accounts.old", "accounts.new").replace('"old"', '"new"')
    assert (said["account"], said["host"], said["new"], said["machines"]) == ("old", None, "new", [row.name])
    (note,) = said["notes"]
    assert note == (
        "the budget mine counts account old under both names; for other users of this ledger, give it the new name: "
        "cloudgpu budget set mine"
    )
    assert two.pass_().exit_code == 0
    assert used_accounts(two.session) == ["lab", "local", "new"]
    two.end(row)
    assert two.session.ledger.machine(row.id).terminated_at is not None


def test_a_budget_of_a_renamed_account_counts_it_under_both_names(two):
    """A budget of one name alone would admit its limit a second time, or cover nothing that is launched from now on."""
    row = two.machine()
    set_budget(two.session, budget_of_options(two.session, BudgetOptions("first", "5", "total", scope="account=old")))
    (before,) = list_budgets(two.session)["budgets"]
    two.rename()
    set_budget(two.session, budget_of_options(two.session, BudgetOptions("then", "5", "total", scope="account=new")))
    launched_since = row._replace(id="cg-other", account="new")
    for budget, found in zip(budgets(two.session), list_budgets(two.session)["budgets"], strict=True):
        assert budget.scope.covers(row)
        assert budget.scope.covers(launched_since)
        assert not budget.scope.covers(row._replace(account="lab"))
        assert found["committed_usd"] == before["committed_usd"] != "0"
    assert [one["scope"] for one in list_budgets(two.session)["budgets"]] == ["account=old", "account=new"]


def test_doctor_checks_the_safeguards_of_a_renamed_accounts_machines(two):
    row = two.machine()
    two.rename()
    assert [check.name for check in guard_checks(two.session, ["new"], two.environ)] == [f"guards {row.name}"]


def test_a_renamed_account_that_does_not_answer_is_that_one_and_no_other(two):
    """Without the line nobody could say whose the machine is while the account is silent."""
    two.end(two.machine())
    two.drop_table(two.new_table)
    down = ProviderUnavailable("STS is down.")
    two.session.provider("new").fail_next("identity", down)
    with pytest.raises(ProviderUnavailable, match="STS is down"):
        plan(two.session, two.environ, "old", "new")
    two.session.provider("new").fail_next("identity", down)
    assert "old" in used_accounts(two.session)
    assert two.rename()["diff"] == []
    two.session.provider("new").fail_next("identity", down, times=9)
    assert used_accounts(two.session) == ["lab", "local", "new"]


def test_no_account_is_renamed_onto_another_one(two):
    row = two.machine()
    two.drop_table(two.new_table.replace("old.json", "new.json"))
    words = f"{row.name} was launched at fake account old, and new is another account: fake account new."
    assert two.refused("old", "new") == words
    assert two.refused("old", "lab").startswith(f"{row.name} was launched at fake account old, and lab is another")


def test_a_name_under_which_the_ledger_has_another_account_is_refused(two):
    """Their machines would appear under one name, and a budget for one would count both."""
    two.file.write_text(two.file.read_text() + two.new_table.replace("old.json", "closed.json"))
    two.session = two.opened()
    row = two.up(account="new").machine
    two.end(row)
    two.file.write_text(two.file.read_text().replace(two.new_table.replace("old.json", "closed.json"), ""))
    two.session = two.opened()
    words = f"{row.name} was launched at fake account closed, which is not [accounts.old]."
    assert two.refused("old", "new") == words


def test_an_account_takes_back_the_name_that_its_machines_were_launched_under(two):
    row = two.machine()
    two.file.write_text(two.file.read_text().replace("accounts.old", "accounts.new"))
    two.session = two.opened()
    two.rename("new", "old")
    assert used_accounts(two.session) == ["lab", "local", "old"]
    terminate_one(two.session, row, why="test")


def test_names_that_mean_nothing_are_refused(two):
    two.machine()
    assert two.refused("odl", "new").endswith("did you mean 'old'?")
    assert two.refused("old", "old") == "That is its name already."
    assert two.refused("old", "A B") == "'A B' is not a name."
    assert two.refused("old", "lab") == "config.toml has both [accounts.old] and [accounts.lab]."
    two.drop_table()
    assert "knows an account or a host 'new'" in two.refused("old", "new")


def test_a_table_that_cannot_be_renamed_safely_stays(two):
    two.file.write_text('accounts.old.provider = "fake"\n' + two.file.read_text().replace(two.table, ""))
    text = two.file.read_text()
    tomllib.loads(text)
    two.session = two.opened()
    with pytest.raises(InvalidRequest, match="cannot be renamed without touching other lines"):
        plan(two.session, two.environ, "old", "new")
    assert two.file.read_text() == text


def test_an_old_name_that_is_taken_up_again_stands_for_itself(two):
    row = two.machine()
    two.rename()
    two.file.write_text(two.file.read_text().replace("accounts.new", "accounts.old"))
    two.session = two.opened()
    assert used_accounts(two.session) == ["lab", "local", "old"]
    assert two.pass_().exit_code == 0
    terminate_one(two.session, row, why="test")


def test_an_account_that_is_another_providers_now_is_said_to_be_that(two):
    two.machine()
    two.drop_table('[accounts.old]\nprovider = "local"\n')
    (shown,) = list_machines(two.session)["machines"]
    assert shown["absent"].startswith("Account old in config.toml is one of local now, not of fake.")
    assert two.pass_().exit_code == 8


def test_doctor_names_a_machine_whose_account_is_another_one_now_and_the_way_out(two):
    row = two.machine()
    two.file.write_text(two.file.read_text().replace("old.json", "other.json"))
    (check,) = [one for one in examine(two.environ, clock=two.clock) if one.name == f"machine {row.name}"]
    assert (check.verdict, check.exit_code) == (Verdict.FAIL, 8)
    assert check.message == f"{row.name} belongs to fake account old; `old` here is fake account other."
    assert check.next.endswith(f"If that account is closed: cloudgpu down {row.name} --lost WHY")


def test_a_local_account_with_machines_keeps_its_name_and_is_not_forgotten(two):
    desk = '[accounts.desk]\nprovider = "local"\n'
    two.file.write_text(two.file.read_text() + desk)
    two.session = two.opened()
    assert plan(two.session, two.environ, "desk", "bench").machines == ()
    identity = {"kind": "computer", "id": "this/ada/desk", "words": "this (user ada)"}
    body = dict(launch(0, "local", beside=[]).body) | {"account": "desk", "identity": identity, "owner": "ada"}
    body["accelerators"] = []
    two.session.ledger.append([Draft("launch_intended", "cg-0", body, two.clock(), "local")])
    (row,) = [row for row in two.session.ledger.machines() if row.id == "cg-0"]
    words = f"Account desk cannot be renamed while {row.name} is there"
    with pytest.raises(InvalidRequest, match=words):
        plan(two.session, two.environ, "desk", "bench")
    two.session.home.provider_dir("local", "desk").mkdir(parents=True)
    two.file.write_text(two.file.read_text().replace(desk, ""))
    two.session = two.opened()
    with pytest.raises(InvalidRequest, match=f"{row.name} is on this computer") as refusal:
        farewell(two.session, two.environ, "desk")
    assert refusal.value.next.startswith("Put [accounts.desk] back into config.toml")
    (shown,) = list_machines(two.session)["machines"]
    assert "the files of its machines are under that name" in shown["absent"]


def test_an_end_whose_account_leaves_the_settings_meanwhile_is_given_up_at_once(two):
    row, began = two.machine(), two.clock()

    def leave():
        accounts = {name: one for name, one in two.session.settings.accounts.items() if name != "old"}
        two.session.settings = replace(two.session.settings, accounts=accounts)

    two.old.fail_next("terminate", leave)
    with pytest.raises(NotReachableHere, match=r"config\.toml has no account old"):
        terminate_one(two.session, row, why="test")
    assert (two.session.ledger.machine(row.id).terminated_at, two.clock() - began < timedelta(minutes=1)) == (
        None,
        True,
    )


def names_of(*renames):
    """Return what was renamed by these lines: account, host or None, new name."""
    drafts = [account_renamed(*one, [], "here", EPOCH) for one in renames]
    at = iso(EPOCH)
    lines = [Event(1, at, "ours", at, "ada", one.kind, one.subject, one.dedupe, "", one.body) for one in drafts]
    return current_names(lines)


def test_names_follow_one_another_and_what_comes_back_to_its_old_one_has_no_other():
    assert names_of(("a", None, "b"), ("b", None, "c")).accounts == {"a": "c", "b": "c"}
    assert names_of(("a", None, "b"), ("b", None, "a")).accounts == {"b": "a"}
    hosts = names_of(("a", "box", "gpu1"), ("a", None, "b"), ("b", "gpu1", "gpu2")).hosts
    assert hosts == {("b", "box"): "gpu2", ("b", "gpu1"): "gpu2"}
    names = names_of(("a", None, "b"), ("b", "box", "gpu1"))
    assert (names.host("a", "box"), names.hosts_of("b")) == ("gpu1", {"box": "gpu1"})
    here = {"b": {"hosts": [{"name": "gpu1"}]}}
    assert names.among(here) == names
    assert names.among({"a": {}, "b": {"hosts": [{"name": "box"}]}}) == CurrentNames()
