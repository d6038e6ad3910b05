"""Retiring an account: refused while anything there may cost; then no look asks it, until it is used again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudgpu.control.inventory.listing import list_machines
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.lifecycle.lifecycle import stop, terminate_one
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.control.session.accounts import cloud_accounts, used_accounts
from cloudgpu.control.setup.doctor import examine
from cloudgpu.control.setup.retire_account import document, forget, plan
from cloudgpu.core.events.general_events import account_forgotten
from cloudgpu.core.events.log import Draft
from cloudgpu.core.model.checks import Verdict
from cloudgpu.core.model.facts import RecordedIdentity
from cloudgpu.core.model.launch import Setup, Volume
from cloudgpu.errors import InvalidRequest, LaunchUncertain, NotReachableHere, ProviderUnavailable, StopUnproved
from tests.control.conftest import Lab
from tests.core.events.test_metering import down, launch
from tests.core.machines import machine


class Two(Lab):
    """A user with a second account, `old`, of the same fake provider, that has a cloud of its own."""

    def __init__(self, tmp_path, monkeypatch):
        self.table = f'[accounts.old]\nprovider = "fake"\nstate_file = "{tmp_path / "old.json"}"\n'
        super().__init__(tmp_path, monkeypatch, self.table)
        self.file = self.home / "config.toml"
        self.file.write_text(f'account = "lab"\n{self.file.read_text()}')
        self.session = self.opened()
        self.old = self.session.provider("old")

    @property
    def environ(self):
        return {"CLOUDGPU_HOME": str(self.home), "USER": "ada"}

    def machine(self, **more):
        row = self.up(account="old", **more).machine
        self.later(minutes=1)
        sync_all(self.session)
        return self.session.ledger.machine(row.id)

    def end(self, row):
        terminate_one(self.session, row, why="test")
        self.later(minutes=1)
        sync_all(self.session)

    def drop_table(self, new=""):
        self.file.write_text(self.file.read_text().replace(self.table, new))
        self.session = self.opened()

    def forget(self):
        made = plan(self.session, self.environ, "old")
        at = forget(self.session, made)
        self.session = self.opened()
        return document(made, at)

    def pass_(self):
        self.later(minutes=1)
        return reap(self.session, ReapOptions())


@pytest.fixture
def two(tmp_path, monkeypatch):
    return Two(tmp_path, monkeypatch)


def refused(two, kind=InvalidRequest):
    head = two.session.ledger.head()
    with pytest.raises(kind) as caught:
        plan(two.session, two.environ, "old")
    assert caught.value.field == "--forget"
    assert caught.value.next
    assert not list(two.session.ledger.events("accounts")), head
    return caught.value


def test_an_account_whose_machines_are_gone_is_retired_and_asked_no_more(two):
    two.end(two.machine())
    before = two.file.read_text()
    said = two.forget()
    assert (said["account"], said["provider"], said["machines"]) == ("old", "fake", 1)
    assert two.file.read_text().split() == before.replace(two.table, "").split()
    assert used_accounts(two.session) == ["lab", "local"]
    asked = two.old.calls["list"]
    assert two.pass_().unanswered == ()
    assert two.old.calls["list"] == asked


def test_a_table_that_was_taken_out_by_hand_keeps_every_pass_from_success_until_the_account_is_forgotten(two):
    two.end(two.machine())
    two.drop_table()
    (gap,) = two.pass_().unanswered
    assert "Put [accounts.old] back, or retire it: cloudgpu init --forget old." in gap.why
    (check,) = [one for one in examine(two.environ, clock=two.clock) if one.name == "account old"]
    assert (check.verdict, "init --forget old" in check.next) == (Verdict.FAIL, True)
    assert two.forget()["diff"] == []
    assert two.pass_().unanswered == ()
    assert not [one for one in examine(two.environ, clock=two.clock) if one.name == "account old"]


def test_a_renamed_table_is_the_same_account_and_another_account_is_said_to_be_none(two):
    two.end(two.machine())
    two.up(name="elsewhere")
    renamed = two.table.replace("accounts.old", "accounts.new")
    two.drop_table(renamed)
    assert two.pass_().unanswered == ()
    two.file.write_text(two.file.read_text().replace("old.json", "new.json"))
    two.session = two.opened()
    (gap,) = two.pass_().unanswered
    assert gap.why.endswith("If new is its new name: cloudgpu init --rename old new.")


def test_it_is_refused_while_a_machine_lives_is_stopped_or_something_of_it_is_kept(two):
    row = two.machine(setup=Setup(volume=Volume("data", 50)))
    assert "is running" in refused(two).message
    stop(two.session, row, why="test")
    assert "is stopped" in refused(two).message
    two.end(two.session.ledger.machine(row.id))
    fault = refused(two)
    assert "data (volume) is kept" in fault.message
    two.drop_table()
    assert "data (volume) is kept" in refused(two).message


def test_a_parked_machine_keeps_its_account(two):
    stop(two.session, two.machine(spot=True), why="test")
    assert "a disk or an image is kept" in refused(two).message


def test_an_open_attempt_keeps_its_account_whether_it_is_configured_or_not(two):
    two.old.fail_next("launch", LaunchUncertain("no reply"), times=9)
    with pytest.raises(LaunchUncertain):
        two.up(account="old")
    two.drop_table()
    fault = refused(two, StopUnproved)
    assert "is an unfinished launch" in fault.message
    assert fault.exit_code == 9


def test_an_account_without_a_table_is_forgotten_with_machines_that_nobody_here_can_ask(two):
    row = two.machine()
    two.drop_table()
    assert two.pass_().exit_code == 8
    (shown,) = list_machines(two.session)["machines"]
    assert (shown["state"], shown["reachable"]) == ("running", False)
    assert shown["absent"].startswith("config.toml has no account old. Put [accounts.old] back into config.toml.")
    checks = {one.name: one for one in examine(two.environ, clock=two.clock)}
    found = checks[f"machine {row.name}"]
    assert (found.verdict, "cloudgpu init --forget old" in found.next) == (Verdict.FAIL, True)
    with pytest.raises(NotReachableHere, match=r"config\.toml has no account old") as refusal:
        terminate_one(two.session, row, why="test")
    assert "cloudgpu init --rename old NEW" in refusal.value.next
    assert two.session.ledger.machine(row.id).terminated_at is None
    said = two.forget()
    assert [(one["name"], one["state"]) for one in said["lost"]] == [(row.name, "running")]
    assert two.session.ledger.machine(row.id).terminated_at is not None
    line = next(one for one in two.session.ledger.events(row.id) if one.kind == "instance_vanished")
    assert line.body["proof"] == "ada says so: old was removed; nothing there can be queried any more"
    assert (two.old.calls["terminate"], two.pass_().exit_code) == (0, 0)
    two.file.write_text(two.file.read_text() + two.table)
    two.session = two.opened()
    sync_all(two.session)
    assert two.session.ledger.machine(row.id).terminated_at is None, "it is found again"


def test_an_account_that_answers_under_another_name_is_not_forgotten_with_its_machines(two):
    row = two.machine()
    two.drop_table(two.table.replace("accounts.old", "accounts.new"))
    assert "can be reached from here" in refused(two).message
    assert two.session.ledger.machine(row.id).terminated_at is None


def test_a_configured_account_that_does_not_answer_is_not_forgotten(two):
    two.end(two.machine())
    two.old.hide("old")
    fault = refused(two, ProviderUnavailable)
    assert (fault.exit_code, "by hand" in fault.next) == (8, True)


def test_an_account_that_is_configured_again_is_asked_again(two):
    two.end(two.machine())
    two.forget()
    two.file.write_text(two.file.read_text() + two.table)
    two.session = two.opened()
    assert "old" in used_accounts(two.session)
    two.end(two.machine(name="later"))
    two.drop_table()
    assert "old" in used_accounts(two.session)  # what ended after the account was forgotten counts again


def test_to_forget_twice_does_nothing_the_second_time(two):
    two.end(two.machine())
    at = two.forget()["forgotten_at"]
    assert plan(two.session, two.environ, "old").forgotten_at == at


@pytest.mark.parametrize(("account", "says"), [("odl", "did you mean 'old'"), ("local", "always an account")])
def test_what_cannot_be_forgotten_is_bad_input(two, account, says):
    two.machine()
    with pytest.raises(InvalidRequest) as caught:
        plan(two.session, two.environ, account)
    assert says in caught.value.message
    assert caught.value.field == "--forget"


IDENTITY = {"kind": "aws account", "id": "123456789012", "words": "AWS account 123456789012"}


def over(second, account, lab):
    """Write the life of a machine that was launched and ended there, by a ledger of another computer say."""
    body = dict(launch(second, account, attached_costs=[]).body) | {"account": account, "identity": IDENTITY}
    lived = (("launch_intended", body), ("instance_observed", dict(down(second, "terminated").body)))
    for number, (kind, what) in enumerate(lived):
        moment = lab.clock() + timedelta(seconds=second + number)
        lab.session.ledger.append([Draft(kind, f"cg-{second}", what, moment, f"{kind}:{second}")])


def test_an_account_that_is_only_found_here_is_asked_no_more_until_it_is_used_again(lab, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    over(0, "aws", lab)
    assert "aws" in used_accounts(lab.session)
    known = machine(identity=RecordedIdentity.of(IDENTITY))
    retired = account_forgotten("aws", "aws", [known], "here", lab.clock() + timedelta(seconds=5))
    lab.session.ledger.append([retired])
    for session in (lab.session, lab.opened()):  # the one that has found it already, and a new one
        assert "aws" not in used_accounts(session)
        assert "aws" not in cloud_accounts(session)
    over(60, "aws", lab)
    lab.later(days=99)
    assert "aws" in used_accounts(lab.opened())
