"""Which policy holds for a machine, inside which limits, and what a hold, a launch, a start and extend meet there."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudgpu.config.policies.chosen import unresolved_policies
from cloudgpu.control.inventory.sync import refresh, sync_all
from cloudgpu.control.lifecycle.lease import hold_caveat, plan_extension, set_hold
from cloudgpu.control.lifecycle.lifecycle import stop
from cloudgpu.control.lifecycle.start import new_lease, start
from cloudgpu.control.policies.commands import explain_policy
from cloudgpu.control.policies.resolve import limits_of, policies_of, policy_of
from cloudgpu.core.model.facts import Terms, TermsText
from cloudgpu.core.policies.policy import RuleAction, agent_policy
from cloudgpu.core.policies.schedule import next_scheduled_end
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import InvalidRequest
from tests.control.policies.test_resolve import elsewhere, refused, settings, spans, write

__all__ = ["elsewhere"]
H = timedelta(hours=1)
OWN = "lease: 6h\nrenew_until: 10h\n"
NIGHTLY = "lease: 6h\nrenew_until: 9d\nschedule: {off: 19:00}\n"


def test_a_launch_is_under_the_policy_of_its_project_or_tag(lab):
    settings(lab, "")
    file = lab.home / "config.toml"
    file.write_text(
        file.read_text() + '[policies.projects]\nthesis = "throwaway"\n[policies.tags]\n"owner=bob" = "never"\n'
    )
    lab.session = lab.opened()
    assert spans(lab, project="thesis", owner="bob")[0] == "throwaway"
    assert spans(lab, owner="bob")[0] == "never"
    assert spans(lab)[0] == "default"
    assert spans(lab, project="thesis", policy="nightly")[0] == "nightly"
    row = lab.up(project="thesis").machine
    held = policy_of(lab.session, row)
    assert (held.name, held.policy.name) == ("throwaway", "throwaway")
    assert held.why == "it was launched under throwaway (policies.projects.thesis of config.toml)"


def test_what_config_toml_says_later_changes_no_machine_that_is_there(lab):
    row = lab.up(policy="throwaway").machine
    settings(lab, 'policy = "never"')
    assert policy_of(lab.session, row).policy.name == "throwaway"
    assert policy_of(lab.session, row).why == "it was launched under throwaway (--policy)"


def test_a_machine_of_an_unknown_launch_is_under_what_a_launch_would_be(lab):
    row = lab.up().machine
    assert row.policy_by
    row = row._replace(policy="", policy_by=None)
    settings(lab, 'policy = "nightly"')
    held = policy_of(lab.session, row)
    assert held.policy.name == "nightly"
    assert held.why == "nobody knows what it was launched under, and policy of config.toml says nightly"


def test_a_choice_that_names_no_policy_is_refused_where_it_stands(lab):
    file = lab.home / "config.toml"
    file.write_text(file.read_text() + '[policies.projects]\nthesis = "nigtly"\n')
    lab.session = lab.opened()
    error = refused(lab, project="thesis")
    assert (error.exit_code, error.field) == (2, "config.toml: policies.projects.thesis")
    assert "did you mean 'nightly'?" in error.message


def test_a_name_that_cannot_be_resolved_means_lease_only_and_is_said(lab):
    write(lab.session.home.policies, "own", OWN)
    row = lab.up(policy="own").machine._replace(terms=None)  # taken up by its tags
    (lab.session.home.policies / "own.yaml").unlink()
    held = policy_of(lab.session, row)
    assert (held.policy, held.read_error) == (None, None)
    assert held.problem == "No policy is called 'own'"
    assert "cannot be resolved (no policy is called 'own')" in held.why


def test_a_projects_own_policy_and_limits_count_for_its_machines_in_every_directory(lab, elsewhere, monkeypatch):
    project = elsewhere / ".cloudgpu" / "policies"
    write(project, "default", f"{OWN}idle: {{after: 3h}}\n")
    write(project, "limits", "idle_after: 2h\n")
    row = lab.up().machine
    (elsewhere / "other").mkdir()
    monkeypatch.chdir(elsewhere / "other")
    held = policy_of(lab.session, row)
    assert (held.policy.idle.after, held.file) == (2 * H, project / "default.yaml")
    write(project, "default", f"{OWN}idle: {{after: 1h}}\n")
    assert policy_of(lab.session, row).policy.idle.after == H
    assert policy_of(lab.session, row._replace(policy="")).policy.idle.after == H, "the shipped one's"


def test_a_broken_file_is_told_from_one_that_is_not_there(lab):
    write(lab.session.home.policies, "own", OWN)
    row = lab.up(policy="own").machine
    write(lab.session.home.policies, "own", f"{OWN}schedule: {{off: 25:00}}\n")
    held = policy_of(lab.session, row)
    assert held.policy is None
    assert (held.read_error.exit_code, held.read_error.field) == (2, "own.yaml:3: schedule.off")


def test_each_reason_for_which_policies_of_one_name_cannot_be_resolved_is_said(lab):
    def under(name, key):
        terms = Terms("elsewhere", TermsText("", f"{key}: 1", "UTC"), (), "1.5")
        return lab.up(name=name).machine._replace(policy="mine", terms=terms)

    rows = [under("one", "x"), under("two", "y"), under("three", "x")]
    first, second = unresolved_policies(policies_of(lab.session, rows), rows)
    assert first.endswith("x is not a known key: only the lease counts for one, three")
    assert second.endswith("y is not a known key: only the lease counts for two")


def test_one_policy_may_be_named_for_all(lab):
    rows = [lab.up(policy="never", name="one").machine, lab.up(name="two").machine]
    held = policies_of(lab.session, rows, "nightly")
    assert {one.policy.name for one in held.values()} == {"nightly"}
    assert {one.why for one in held.values()} == {"--policy nightly"}


def test_a_schedule_without_a_zone_goes_by_the_one_of_config_toml(lab):
    settings(lab, 'tz = "Asia/Seoul"')
    policy = policy_of(lab.session, lab.up(policy="nightly").machine).policy
    assert next_scheduled_end(policy.schedules, lab.clock()).hour == 10


LIMITS = "lease: 4h\nrenew_until: 1d\nidle_after: 30m\npolicies: [default, never]\n"


def test_a_policy_beyond_the_limits_is_cut_and_the_plan_says_so(lab):
    write(lab.session.home.policies, "limits", LIMITS)
    plan = lab.prepare().plan
    assert (plan.request.lease_s, plan.request.renew_s) == (4 * 3600, 24 * 3600)
    assert "the limits cut the lease from 8h to 4h" in plan.remarks
    assert "the limits cut the renew-until from 3d to 1d" in plan.remarks
    assert "the limits stop it after 30m of idle time (policy default: 1h)" in plan.remarks


def test_never_inside_limits_on_idle_time_is_stopped_for_it(lab):
    write(lab.session.home.policies, "limits", LIMITS)
    assert lab.prepare(policy="never").candidates.items[0].policy.idle.do is RuleAction.STOP
    row = lab.up(policy="never").machine
    held = policy_of(lab.session, row)
    assert (held.policy.idle.do, held.policy.idle.after) == (RuleAction.STOP, H / 2)
    assert held.cuts == ("the limits stop it after 30m of idle time (policy never: do: off)",)


@pytest.mark.parametrize(
    ("typed", "field", "says"),
    [
        ({"policy": "training"}, "--policy", "Use one of: default, never"),
        ({"lease": 5 * H}, "--lease", "Ask for at most 4h"),
        ({"lease": 3 * H, "renew_until": 25 * H}, "--renew-until", "Ask for at most 1d"),
        ({"lease": 30 * H}, "--lease", "Ask for at most 4h"),
    ],
)
def test_what_is_typed_beyond_the_limits_is_refused_with_the_way_out(lab, typed, field, says):
    write(lab.session.home.policies, "limits", LIMITS)
    error = refused(lab, **typed)
    assert (error.exit_code, error.field) == (2, field)
    assert says in error.next
    assert "limits.yaml" in error.next


def test_a_usual_policy_that_the_limits_do_not_allow_is_refused_where_it_stands(lab):
    write(lab.session.home.policies, "limits", "policies: [nightly]\n")
    error = refused(lab)
    assert (error.exit_code, error.field) == (2, "config.toml: policy")


def test_limits_with_a_fault_refuse_a_launch(lab):
    write(lab.session.home.policies, "limits", "lease: forever\n")
    error = refused(lab)
    assert (error.exit_code, error.field) == (2, "limits.yaml:1: lease")


def test_a_projects_limits_hold_beside_the_homes(lab, elsewhere):
    write(lab.session.home.policies, "limits", "lease: 5h\nrenew_until: 2d\n")
    write(elsewhere / ".cloudgpu" / "policies", "limits", "lease: 7h\nrenew_until: 1d\n")
    assert (limits_of(lab.session).lease, limits_of(lab.session).renew_until) == (5 * H, 24 * H)


def test_a_lease_beyond_another_files_renew_until_is_refused_too(lab, elsewhere):
    write(lab.session.home.policies, "limits", "lease: 2d\n")
    write(elsewhere / ".cloudgpu" / "policies", "limits", "renew_until: 1d\n")
    error = refused(lab, lease=30 * H)
    assert (error.field, error.next.partition(".")[0]) == ("--lease", "Ask for at most 1d")
    row = lab.up(lease=20 * H).machine
    with pytest.raises(InvalidRequest, match="beyond the limit of 1d"):
        plan_extension(lab.session, row, 5 * H)


def test_a_start_keeps_inside_the_limits(lab):
    row = lab.up().machine
    write(lab.session.home.policies, "limits", LIMITS)
    lease, now = new_lease(lab.session, row, None), lab.clock().replace(microsecond=0)
    assert ((lease.expires - now), (lease.renew_until - now)) == (4 * H, 24 * H)
    assert new_lease(lab.session, row, 2 * H).expires - now == 2 * H
    with pytest.raises(InvalidRequest, match="--lease is 5h, beyond the limit of 4h"):
        new_lease(lab.session, row, 5 * H)


def test_extend_keeps_inside_the_limits(lab):
    row = lab.up(lease=2 * H, renew_until=3 * H).machine
    write(lab.session.home.policies, "limits", LIMITS)
    assert plan_extension(lab.session, row, 2 * H).moves_renew_until
    with pytest.raises(InvalidRequest, match="beyond the limit of 4h") as caught:
        plan_extension(lab.session, row, 3 * H)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("policy", "hours", "says"),
    [
        ("default", 10, None),
        ("default", 80, "renew-until ends it at 2026-11-23"),
        ("own", 40, "its schedule ends it at 2026-11-20 19:00 UTC all the same"),
    ],
)
def test_where_a_hold_loses_is_said_when_it_is_set(lab, policy, hours, says):
    write(lab.session.home.policies, "own", NIGHTLY)
    row = lab.up(policy=policy).machine
    said = hold_caveat(lab.session, row, lab.clock() + hours * H)
    assert said is None if says is None else says in said


def test_a_hold_of_a_machine_whose_schedule_only_warns_is_not_said_to_lose(lab):
    write(lab.session.home.policies, "own", f"{NIGHTLY}spot: {{unpausable: warn}}\n")
    row = lab.up(policy="own", spot=True).machine
    assert hold_caveat(lab.session, row, lab.clock() + 40 * H) is None
    assert "its schedule ends it" in hold_caveat(lab.session, row._replace(stoppable=True), lab.clock() + 40 * H)


def test_a_budget_that_stops_is_said_when_a_hold_is_set(lab):
    write(lab.session.home.policies / "budgets", "lab", "amount: 5\nperiod: month\naction: stop\n")
    write(lab.session.home.policies, "own", f"{OWN}budget: {{amount: 4, do: stop}}\n")
    said = hold_caveat(lab.session, lab.up(policy="own", override="a test").machine, lab.clock() + H)
    assert said == (
        "the budget lab may end it once it is spent, after 2 warnings; "
        "its policy ends it once it has cost $4.00, after 2 warnings"
    )


def test_a_budget_that_only_tells_or_is_anothers_does_not_end_a_held_machine(lab):
    write(lab.session.home.policies / "budgets", "told", "amount: 5\nperiod: month\naction: notify\n")
    others = "amount: 5\nperiod: month\naction: stop\nscope: {project: another}\n"
    write(lab.session.home.policies / "budgets", "other", others)
    assert hold_caveat(lab.session, lab.up(override="a test").machine, lab.clock() + H) is None


def test_a_broken_policy_is_not_in_the_way_of_a_hold(lab):
    row = lab.up().machine
    write(lab.session.home.policies, "limits", "lease: forever\n")
    assert "is not known: limits.yaml:1" in hold_caveat(lab.session, row, lab.clock() + H)


def test_broken_limits_are_not_in_the_way_of_a_release(lab):
    row = set_hold(lab.session, lab.up().machine, lab.clock() + H)
    write(lab.session.home.policies, "limits", "lease: forever\n")
    with pytest.raises(InvalidRequest, match=r"limits\.yaml:1"):
        set_hold(lab.session, row, lab.clock() + H)
    assert set_hold(lab.session, row, None).hold_until is None


@pytest.mark.parametrize("then", ["a look sees the hold", "it is set anew"])
def test_a_release_counts_though_its_clock_is_behind_the_one_that_set_the_hold(lab, then):
    row = set_hold(lab.session, lab.up().machine, lab.clock() + 9 * H)
    lab.later(minutes=30)
    if then == "it is set anew":
        set_hold(lab.session, row, lab.clock() + 9 * H)
    else:
        refresh(lab.session, row, record_unchanged=True)
    lab.clock.now -= H
    assert set_hold(lab.session, row, None).hold_until is None
    lab.later(minutes=90)
    sync_all(lab.session)
    assert lab.session.ledger.machine(row.id).hold_until is None


def test_a_hold_after_such_a_release_counts_too(lab):
    row = set_hold(lab.session, lab.up().machine, lab.clock() + 9 * H)
    lab.clock.now -= H
    set_hold(lab.session, row, None)
    until = lab.clock() + 3 * H
    assert from_iso(set_hold(lab.session, row, until).hold_until) == until


def test_the_agent_is_told_of_the_offs_that_may_come_in_its_life(lab):
    write(lab.session.home.policies, "own", NIGHTLY)
    row = lab.up(policy="own").machine
    policy, begin, end = policy_of(lab.session, row).policy, lab.clock(), from_iso(row.renew_until)
    told = agent_policy(policy, begin, end)
    assert len(told["off"]) == 9 + 7
    assert told["off"] == sorted(set(told["off"]))
    assert all(begin.timestamp() < off <= (end + timedelta(days=7)).timestamp() for off in told["off"])
    assert (told["after"], told["grace"], told["stop"], told["ends"], told["scratch"]) == (
        3600, 600, True, "IDLE", "warn",
    )  # fmt: skip
    assert len(agent_policy(policy, begin, end + timedelta(days=300))["off"]) == 60


def test_the_agent_of_a_machine_that_cannot_be_stopped_only_warns_under_warn(lab):
    write(lab.session.home.policies, "own", f"{NIGHTLY}spot: {{unpausable: warn}}\n")
    policy = lab.prepare(policy="own", spot=True).candidates.items[0].policy
    begin = lab.clock()
    assert agent_policy(policy, begin, begin + 90 * H, stoppable=True)["stop"]
    told = agent_policy(policy, begin, begin + 90 * H, stoppable=False)
    assert (told["stop"], told["off"]) == (False, [])
    assert not agent_policy(lab.prepare(policy="never").candidates.items[0].policy, begin, begin + H)["stop"]


def test_who_launches_or_starts_at_the_weekend_is_told_that_the_schedule_keeps_machines_off(lab):
    write(lab.session.home.policies, "own", f"{OWN}schedule: {{off: 19:00, days: [fri], until: mon 07:00}}\n")
    told = "its schedule keeps it off until Mon 2026-11-23 07:00 UTC: the next run warns, and ends it 10m later unless"
    assert not any("keeps it off" in one for one in lab.prepare(name="fox", policy="own").plan.remarks)
    lab.later(hours=26)  # from Friday to Saturday
    assert any(one.startswith(told) for one in lab.prepare(name="fox", policy="own").plan.remarks)
    lab.up(name="fox", policy="own")
    (row,) = lab.rows()
    stop(lab.session, row, why="a test")
    start(lab.session, lab.rows()[0], new_lease(lab.session, row, None))
    assert any(one.startswith(f"fox: {told}") for one in lab.said)
    (schedule,) = [one["text"] for one in explain_policy(lab.session, "fox")["rules"] if one["rule"] == "schedule"]
    assert schedule.endswith(
        "the next is Fri 2026-11-27 19:00 there; it is kept off now, until Mon 2026-11-23 07:00 there"
    )
