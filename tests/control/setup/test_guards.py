"""No guard is named that is not there: plans, sums, doctor, show and budgets go by what a provider says it has."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from cloudgpu.cli.launch.planned import plan_text
from cloudgpu.cli.machine_text import guards_text
from cloudgpu.control.budgets.commands import BudgetOptions, set_budget_document
from cloudgpu.control.launch.budget_preview import admission_request
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.control.setup.guards import guard_checks
from cloudgpu.core.model.facts import MachineGuards
from cloudgpu.errors import BudgetRefused
from cloudgpu.views.machines import machine_document
from cloudgpu.views.plans import plan_document
from tests.control.conftest import Lab

UNGUARDED = 'agent = "none"\nlacks = ["HasTimer"]\n'
TOLD = 'agent = "tells"\nlacks = ["HasTimer"]\n'


def text(lab, **more):
    value = plan_document(lab.prepare(**more).plan)
    return value, " ".join(plan_text(value, lab.clock()).split())


def shown(lab):
    (row,) = lab.rows()
    return guards_text(machine_document(row, lab.clock()), lab.clock())


def test_without_an_agent_and_a_timer_the_plan_names_neither(make_lab):
    value, said = text(make_lab(UNGUARDED), no_guard=True)
    assert value["guards"] == ["only cloudgpu reap or watch ends it"]
    none = {"agent": "none", "timer": "none", "run": None, "waived": True}
    assert (value["guarded"], value["lease_ends"]) == (none, False)
    assert "nothing ends this machine by itself: no scheduled run of the reaper is relied on" in said
    assert "idle never: no agent runs on it, so its use is not known" in said
    assert "which does not end it: it runs until" in said
    assert "to the end of the lease" not in said
    assert "to its renew-until" in said
    assert "an hour until you end it, if neither cloudgpu reap nor watch runs" in said


def test_a_policy_that_ends_what_nobody_knows_ends_it_with_its_lease(make_lab):
    lab = make_lab(UNGUARDED)
    lab.session.home.policies.mkdir(parents=True)
    (lab.session.home.policies / "own.yaml").write_text("lease: 1h\nrenew_until: 4h\nunknown: end\n")
    value, said = text(lab, policy="own", no_guard=True)
    assert value["lease_ends"]
    assert "to the end of the lease" in said


NO_AGENT = "the agent: none, as cloudgpu's agent does not run on it"
NO_END = "the agent: none, as a shutdown from inside does not end billing"
REST = "; the timer in the cloud: none; the reaper: nothing decided; only cloudgpu reap or watch ends it"
WAIVED = ", and it was launched or started with --no-guard"


@pytest.mark.parametrize(
    ("options", "agent", "expected"),
    [
        ("", "ends", "the agent in 8h; the timer in the cloud in 3d; the reaper: nothing decided"),
        (UNGUARDED, "none", NO_AGENT + REST + WAIVED),
        (TOLD, "tells", NO_END + REST + WAIVED),
    ],
)
def test_show_and_doctor_say_what_there_is(make_lab, options, agent, expected):
    lab = make_lab(options)
    lab.up(no_guard=True)
    assert shown(lab) == expected
    (row,) = lab.rows()
    assert machine_document(row, lab.clock())["guards"]["agent_is"] == agent
    (check,) = guard_checks(lab.session, ["lab"], {})
    if options:
        assert str(check.verdict) == "warn"
        assert check.message.endswith("Only cloudgpu reap or watch would end it.")
        assert check.next == "Run: cloudgpu cron install"
    assert ("no agent runs on it" in check.message) == (agent == "none")


def test_doctor_relies_on_no_run_of_a_clock_that_was_days_ahead(make_lab):
    lab = make_lab(UNGUARDED)
    lab.up(no_guard=True)
    lab.later(days=2)
    reap(lab.session, ReapOptions())
    (check,) = guard_checks(lab.session, ["lab"], {})
    assert "a run succeeded 0s ago" in check.message
    lab.clock.advance(-timedelta(days=2).total_seconds())
    (check,) = guard_checks(lab.session, ["lab"], {})
    assert "no run of the reaper has succeeded since the clock was set back" in check.message
    assert str(check.verdict) == "warn"


def month(lab, usd):
    set_budget_document(lab.session, BudgetOptions("lab", usd, "month"), overwrite=False)


def test_a_budget_reserves_to_the_end_of_its_period_what_nothing_ends(make_lab):
    lab = make_lab(UNGUARDED)
    month(lab, "100000")
    (alone,) = admission_request(lab.session, lab.prepare(no_guard=True)).admission().verdicts
    reap(lab.session, ReapOptions())  # passes are made: one of them ends it at its renew-until
    (watched,) = admission_request(lab.session, lab.prepare(no_guard=True)).admission().verdicts
    three_days = lab.prepare(no_guard=True).plan.to_renew_until.amount.nanos
    assert three_days <= watched.tightest.requested.nanos < 1.1 * three_days
    assert alone.tightest.requested.nanos > 2 * three_days


def test_a_budget_that_carries_three_days_refuses_what_nothing_would_end_then(make_lab):
    guarded = make_lab("")
    plan_ = guarded.prepare().plan
    limit = plan_.to_renew_until.amount.nanos * 11 // 10
    month(guarded, str(limit / 10**9))
    assert launch(guarded.session, guarded.prepare(), wait=False).machine.terminated_at is None


def test_the_same_budget_refuses_it_without_guards(make_lab):
    lab = make_lab(UNGUARDED)
    limit = lab.prepare(no_guard=True).plan.to_renew_until.amount.nanos * 11 // 10
    month(lab, str(limit / 10**9))
    with pytest.raises(BudgetRefused, match="Only cloudgpu reap or watch ends such a machine") as refused:
        launch(lab.session, lab.prepare(no_guard=True), wait=False)
    assert "cloudgpu cron install" in refused.value.next
    reap(lab.session, ReapOptions())
    launch(lab.session, lab.prepare(no_guard=True), wait=False)


def test_the_timer_of_a_local_machine_is_named_as_what_it_is(tmp_path, monkeypatch):
    """It is a process on this computer, and no cloud's."""
    environ = {"CLOUDGPU_HOME": str(tmp_path), "USER": "ada"}
    session = open_session(environ)
    found = session.provider("local").guards
    assert json.loads(json.dumps(found.to_json())) == {"agent": "ends", "timer": "own", "follows": True}
    from cloudgpu.core.launch.plan import _safeguard_texts

    assert _safeguard_texts(found)[1] == "its own timer, a process on the same computer (renew-until)"
    lab = Lab(tmp_path, monkeypatch)
    lab.up()
    (row,) = lab.rows()
    value = machine_document(row._replace(guards=MachineGuards.of(found.to_json())), lab.clock())
    assert "its own timer, a separate process in 3d" in guards_text(value, lab.clock())


def test_a_machine_without_an_agent_is_asked_nothing_and_says_why(make_lab):
    from cloudgpu.control.policies.commands import explain_policy

    lab = make_lab(f'{UNGUARDED}host = "127.0.0.1"\nport = 9\n')
    row = lab.up(name="fox", no_guard=True).machine
    lab.later(hours=7, minutes=55)
    found = reap(lab.session, ReapOptions())
    (decision,) = found.decisions
    assert (decision.do, found.exit_code) == ("renew", 0)
    assert decision.why.endswith("no agent runs on it, so its use is not known")
    (rule,) = [one for one in explain_policy(lab.session, "fox")["rules"] if one["rule"] == "idle"]
    assert rule["text"].startswith("never: no agent runs on it")
    assert row.guards.agent == "none"
