"""Who hears of a pass: terminals, owners, the watcher outside; and a rehearsal, of which nobody hears."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from cloudgpu.cli.machines.listing import _text
from cloudgpu.control.budgets.commands import BudgetOptions, set_budget_document
from cloudgpu.control.inventory.listing import list_machines
from cloudgpu.control.lifecycle.lease import set_hold
from cloudgpu.core.policies.policy import ReaperAction, Rule
from cloudgpu.errors import InvalidRequest
from tests.access.sshserver import wait_for
from tests.control.conftest import Fleet


@pytest.fixture
def told(tmp_path, monkeypatch, agents, web):
    """A fleet whose owner is told over HTTP, and whose passes are watched from outside."""
    alerts = f'[alerts]\nto = ["json://{web.place}/owner"]\ndeadman = "http://{web.place}/alive"\n'
    return Fleet(tmp_path, monkeypatch, f'{agents.options}timer = "moves"\n{alerts}', agents)


@pytest.mark.soak
def test_the_owner_hears_of_a_warning_once_and_the_watcher_of_each_pass(told, web):
    told.up(name="fox")
    told.idle(hours=2)
    told.idle(minutes=5)
    posts = [body.decode() for method, _, body in web.got if method == "POST"]
    assert len(posts) == 1
    assert "fox ends at 2026-11-20 13:10 UTC (idle)" in posts[0]
    assert "cloudgpu hold fox 2h" in posts[0]
    assert [path for method, path, _ in web.got if method == "GET"] == ["/alive", "/alive"]
    (given,) = [line for line in told.session.ledger.events(told.machine().id) if line.kind == "warning_sent"]
    assert given.body["how"] == ["ledger", "alert"]


def test_the_watcher_hears_of_a_pass_that_was_not_whole_and_of_one_that_broke_off(told, web):
    told.policy("mine", "lease: 4h\nrenew_until: 9h\n")
    told.up(name="fox", policy="mine")
    told.cloud.hide("south")
    assert told.idle(minutes=5).exit_code == 8
    told.policy("mine", "lease: 4h\n")
    with pytest.raises(InvalidRequest):
        told.pass_()
    assert [path for method, path, _ in web.got if method == "GET"] == ["/alive/fail", "/alive/fail"]


@pytest.mark.soak
def test_a_receiver_that_takes_nothing_keeps_no_machine_running(told, web):
    web.end()
    told.up(name="fox")
    assert told.idle(hours=2).undelivered
    found = told.idle(minutes=10)
    assert [(one.name, one.do) for one in found.ended] == [("fox", ReaperAction.STOP)]


@pytest.mark.soak
def test_a_person_at_a_terminal_of_the_machine_is_told_when_it_ends(fleet, agents):
    fleet.up(name="fox")
    ours, theirs = pty.openpty()
    environ = {"HOME": str(agents.home), "PATH": os.environ["PATH"]}
    waits = "import sys, time; print('here', flush=True); sys.stdin.read()"
    shell = subprocess.Popen([sys.executable, "-c", waits], stdin=theirs, stdout=theirs, env=environ)
    try:
        assert wait_for(lambda: b"here" in os.read(ours, 100))
        (told,) = fleet.idle(hours=2).warned
        assert told.how == ("ledger", "terminal")
        said = os.read(ours, 1000).decode()
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)
        os.close(theirs)
    assert "[cloudgpu] fox: idle for" in said
    assert "To keep it, use it, or run: cloudgpu hold fox 2h" in said


def budget(fleet):
    set_budget_document(fleet.session, BudgetOptions("lab", "1", "total", "all", action="notify,stop"), overwrite=False)


def test_a_budget_that_is_passed_stops_a_machine_in_use(fleet, agents):
    fleet.up(name="fox")
    fleet.later(hours=1)
    budget(fleet)
    agents.says(fleet.clock(), gpu=90)
    (ended,) = fleet.pass_().ended
    assert (ended.name, ended.do, ended.rule) == ("fox", ReaperAction.STOP, Rule.BUDGET)
    assert ended.why.startswith("the budget lab is exceeded: $3.04 of $1.00")


def test_a_budget_that_is_passed_warns_a_held_machine_twice_before_it_stops_it(fleet, agents):
    fleet.up(name="fox")
    set_hold(fleet.session, fleet.machine(), fleet.clock.now.replace(hour=23))
    fleet.later(hours=1)
    budget(fleet)
    for _ in range(2):
        found = fleet.idle(minutes=10)
        assert [(one.name, one.rule, one.due) for one in found.warned] == [("fox", Rule.BUDGET, None)]
        assert found.ended == ()
    assert [one.rule for one in fleet.idle(minutes=10).ended] == [Rule.BUDGET]


@pytest.mark.soak
def test_a_rehearsal_changes_nothing_anywhere(told, web):
    told.up(name="fox")
    told.idle(hours=2)
    told.later(minutes=10)
    told.agents.says(told.clock())
    web.got.clear()
    before = state(told)
    found = told.pass_(dry_run=True)
    assert state(told) == before
    assert web.got == []
    assert [(one.name, one.do) for one in found.decisions] == [("fox", ReaperAction.STOP)]
    assert (found.ended, found.warned, found.dry_run) == ((), (), True)


def test_a_rehearsal_of_what_has_gone_meanwhile_says_so_and_writes_nothing(fleet):
    fleet.up(name="fox")
    fleet.cloud.terminate(fleet.machine().provider_id)
    head = fleet.session.ledger.head()
    found = fleet.pass_(dry_run=True)
    assert found.decisions == ()
    assert fleet.session.ledger.head() == head
    assert fleet.machine().terminated_at is None


def state(fleet):
    """All files of the home, and what the cloud has, but for how often it was asked."""
    memory = ".db-shm"  # SQLite's own, in which readers mark where they read
    files = {path: path.read_bytes() for path in fleet.home.rglob("*") if path.is_file() and path.name[-7:] != memory}
    cloud = [(one.id, one.state, dict(one.tags)) for one in fleet.cloud.list().instances]
    return files, cloud, fleet.session.ledger.head()


@pytest.mark.soak
def test_ls_says_of_which_machines_nobody_can_tell_whether_they_are_idle(fleet, agents):
    """Its owner was told of it; the list says it, too, until its agent is heard again."""
    fleet.up(name="fox")
    agents.runs("exit 127")
    assert list_machines(fleet.session, refresh=False, ended=False)["machines"][0]["activity_unknown_reason"] is None
    for _ in range(5):
        fleet.idle(minutes=30)
    document = list_machines(fleet.session, refresh=False, ended=False)
    said = " ".join(_text(document, fleet.clock(), lambda: True).split())
    assert "fox: nobody can tell from outside whether it is idle: whether it is used is not known for" in said
    agents.runs("cat ~/.cloudgpu/answer")
    fleet.idle(minutes=10)
    assert list_machines(fleet.session, refresh=False, ended=False)["machines"][0]["activity_unknown_reason"] is None
