"""Where nothing on a machine ends its bill, a launch asks for a scheduled run from a computer that stays on."""

from __future__ import annotations

import json
import platform
from datetime import timedelta

import pytest

from cloudgpu.cli.app import run
from cloudgpu.cli.launch.planned import brief_plan_text
from cloudgpu.cli.machine_text import guards_text
from cloudgpu.config.files.user_files import Home
from cloudgpu.control.inventory.listing import list_machines
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.lifecycle.lease import extend, hold_caveat, plan_extension, set_hold
from cloudgpu.control.lifecycle.lifecycle import stop, terminate_one
from cloudgpu.control.lifecycle.start import new_lease, start
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.control.scheduler.jobs import reap_once
from cloudgpu.control.session import guarding
from cloudgpu.control.session.last_run import read_last_run, unguarded_sentence
from cloudgpu.core.model.identity import QueriedAccount, Unanswered
from cloudgpu.core.model.offers import NoteKind, note_kind
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.errors import InvalidRequest, ProviderUnavailable
from cloudgpu.views.machines import machine_document
from cloudgpu.views.plans import plan_document
from tests.control.conftest import Fleet

HERE = platform.node()
# As Lambda: nothing but terminate.
POOR = 'agent = "tells"\nlacks = ["HasTimer", "Pausable", "Imageable", "Taggable"]\n'
STOPS = 'agent = "tells"\nlacks = ["HasTimer"]\n'
POLICY = "lease: 1h\nrenew_until: 4h\nunknown: end\nspot: {unpausable: terminate}\n"


class Power:
    """What Linux says of this computer's power."""

    def __init__(self, root):
        self.root = root
        root.mkdir(parents=True)

    def supply(self, name, **said):
        (self.root / name).mkdir(exist_ok=True)
        for key, value in said.items():
            (self.root / name / key).write_text(f"{value}\n")

    def on_battery(self):
        self.supply("BAT0", type="Battery", status="Discharging")

    def on_mains(self):
        self.supply("BAT0", type="Battery", status="Charging")


@pytest.fixture
def power(tmp_path, monkeypatch):
    """A computer without a battery."""
    found = Power(tmp_path / "class" / "power_supply")
    monkeypatch.setattr(guarding, "POWER_SUPPLY", found.root)
    return found


@pytest.fixture
def poor(make_lab, power):
    lab = make_lab(POOR)
    lab.session.home.policies.mkdir(parents=True)
    (lab.session.home.policies / "own.yaml").write_text(POLICY)
    return lab


def passed(lab, *, cron=True, every=10, **span):
    """Let time go by and make a run, of a process of its own."""
    lab.later(**span)
    return reap(lab.opened(), ReapOptions(cron=cron, interval=timedelta(minutes=every)))


def refused(lab, **more):
    with pytest.raises(InvalidRequest) as error:
        lab.prepare(**more)
    assert error.value.exit_code == 2
    assert "cloudgpu cron install" in error.value.next
    assert "cloudgpu watch" in error.value.next
    assert "--no-guard" in error.value.next
    assert lab.machines() == []
    return error.value.message


@pytest.mark.parametrize(
    ("supplies", "draws"),
    [
        ([], False),
        ([{"type": "Mains", "online": "1"}], False),
        ([{"type": "Battery", "status": "Discharging"}], True),
        ([{"type": "Battery", "status": "Full"}, {"type": "Mains", "online": "1"}], False),
        ([{"type": "Battery", "status": "Discharging", "scope": "Device"}], False),
        ([{"type": "UPS", "status": "Discharging"}], True),
        ([{}], False),
    ],
)
def test_a_battery_counts_while_the_computer_draws_on_it(power, supplies, draws):
    for number, one in enumerate(supplies):
        power.supply(f"supply{number}", **one)
    assert guarding.on_battery(power.root) is draws


def test_a_system_that_does_not_tell_is_not_taken_for_one_that_stays_on(tmp_path):
    assert guarding.on_battery(tmp_path / "none", system="darwin") is None
    assert guarding.on_battery(tmp_path / "none", system="linux") is False
    assert guarding.on_battery(tmp_path / "no" / "sys" / "at-all", system="linux") is None


def test_a_system_whose_power_supplies_cannot_be_read_does_not_tell(tmp_path):
    """A run of the reaper asks this before it is recorded: a sandbox that forbids it must not end the run."""
    unreadable = tmp_path / ("x" * 300)  # an OSError for root, too, unlike a missing permission
    assert guarding.on_battery(unreadable, system="linux") is None


def test_without_a_scheduled_run_nothing_is_launched_and_the_way_out_is_named(poor):
    assert refused(poor).endswith("and none has been heard yet.")
    passed(poor, cron=False)  # by hand: nobody makes the next one
    assert refused(poor).endswith("and none has been heard yet.")


def test_a_run_admits_for_twice_its_interval_and_the_plan_says_on_what_it_relies(poor):
    passed(poor)
    poor.later(minutes=20)
    value = plan_document(poor.prepare().plan)
    assert value["guarded"]["run"] == {"host": HERE, "every_s": 600.0, "at": "2026-11-20T11:00:00.000000Z"}
    text = " ".join(brief_plan_text(value, poor.clock()).split())
    assert f"all that ends this machine: it relies on those on {HERE}, every 10m" in text
    assert "nobody hears when those runs stop: [alerts] deadman in config.toml is not set" in text
    poor.later(seconds=1)
    assert refused(poor).endswith(f"the last one, on {HERE}, was 20m 1s ago and should come every 10m.")


@pytest.mark.parametrize(("every", "late"), [(8 * 60, False), (24 * 60, True)])
def test_a_plan_that_relies_on_seldom_runs_says_how_late_they_may_end_it(poor, every, late):
    """As those of `cron install --nightly`: the usual lease is of eight hours."""
    passed(poor, every=every)
    notes = [one for one in poor.prepare().plan.remarks if "past its lease or renew-until" in one]
    assert [note_kind(one) for one in notes] == [NoteKind.MONEY] * late
    assert all("up to 1d past" in one for one in notes)


def test_a_run_that_falls_silent_between_the_plan_and_the_yes_launches_nothing(poor):
    passed(poor)
    prepared = poor.prepare()
    poor.later(minutes=21)
    with pytest.raises(InvalidRequest, match="should come every 10m"):
        launch(poor.session, prepared, wait=False)
    assert (poor.machines(), poor.session.ledger.machines()) == ([], [])


def test_a_laptop_on_its_battery_does_not_count_and_one_on_the_mains_does(poor, power):
    power.on_battery()
    passed(poor)
    assert "runs on a battery" in refused(poor)
    power.on_mains()
    passed(poor, minutes=10)
    assert poor.up().machine.terminated_at is None


def test_a_colleagues_run_on_the_same_ledger_counts_until_it_is_silent(poor, power, monkeypatch):
    monkeypatch.setattr(platform, "node", lambda: "server")
    passed(poor)
    monkeypatch.setattr(platform, "node", lambda: "laptop")
    power.on_battery()
    passed(poor, minutes=5)  # the laptop's line carries the server's run on
    assert poor.prepare().plan.scheduled_run.host == "server"
    passed(poor, minutes=16)
    assert "laptop runs on a battery" in refused(poor)


def test_a_computer_of_the_same_name_with_a_battery_does_not_hide_the_one_that_stays_on(poor, power):
    """Many images call their computer "ubuntu": what tells them apart is the number that each home has."""
    passed(poor)
    server = guarding.home_id(poor.session)
    assert guarding.home_id(poor.opened()) == server  # also for the next process
    poor.session.home.number_file.unlink()  # from here on we are the other one
    power.on_battery()
    passed(poor, minutes=5)
    assert guarding.home_id(poor.session) != server
    assert poor.prepare().plan.scheduled_run.host == HERE
    assert [(one.host, one.battery) for one in guarding.scheduled_runs(poor.session)] == [(HERE, False), (HERE, True)]
    passed(poor, minutes=16)
    assert "runs on a battery" in refused(poor)


def test_a_copy_of_a_home_on_the_same_computer_is_another_one(poor, tmp_path):
    passed(poor)
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "number").write_bytes(poor.session.home.number_file.read_bytes())
    first = guarding.home_id(poor.session)
    poor.session.home = Home(copy)
    assert guarding.home_id(poor.session) != first


def test_a_watch_that_stays_on_makes_its_own_runs_beside_those_of_a_laptop(poor, power, monkeypatch):
    """Each computer can say only of itself that it will be there: the laptop's run is no reason to make none."""
    every = timedelta(minutes=10)

    def on(name, supply, *, cron):
        monkeypatch.setattr(platform, "node", lambda: name)
        supply()
        session = poor.opened()
        return reap(session, ReapOptions(cron=True, interval=every)) if cron else reap_once(session, every)

    on("server", power.on_mains, cron=False)
    for _ in range(4):
        poor.later(minutes=9)
        on("laptop", power.on_battery, cron=True)
        poor.later(minutes=1, seconds=1)
        on("server", power.on_mains, cron=False)
        made = len(list(poor.session.ledger.events("reaper")))
        on("server", power.on_mains, cron=False)  # another watch of the same computer makes no second one
        assert len(list(poor.session.ledger.events("reaper"))) == made
    assert poor.prepare().plan.scheduled_run.host == "server"


def test_a_run_that_the_account_did_not_answer_does_not_count(poor):
    asked = [QueriedAccount("lab", "fake"), QueriedAccount("gone", "fake")]  # of the other nobody can say who it is
    answered = guarding.completed_run(poor.session, timedelta(minutes=10), asked, ())
    assert [one.startswith("scope:fake/") for one in answered.accounts] == [True]
    silent = guarding.completed_run(poor.session, timedelta(minutes=10), asked, [Unanswered("lab", "it timed out")])
    assert silent.accounts == frozenset()
    poor.cloud.fail_next("list", ProviderUnavailable("it timed out", field="provider"), times=9)
    passed(poor)
    (heard,) = read_last_run(poor.session.ledger).scheduled
    assert (heard.host, heard.every, heard.battery, heard.accounts) == (HERE, timedelta(minutes=10), False, frozenset())


def test_who_types_no_guard_launches_and_it_is_written_down_and_shown(poor):
    row = poor.up(no_guard=True).machine
    (line,) = [one for one in poor.session.ledger.events(row.id) if one.kind == "launch_intended"]
    assert line.body["guards"]["waived"] is True
    value = machine_document(row, poor.clock())
    assert value["guards"]["waived"] is True
    assert guards_text(value, poor.clock()).endswith("and it was launched or started with --no-guard")
    poor.later(hours=2)
    assert unguarded_sentence(poor.session) is None  # it was agreed to


def test_with_a_run_nothing_is_waived_though_no_guard_is_typed_elsewhere(make_lab, power):
    row = make_lab("").up(no_guard=True).machine
    assert row.guards.waived is False


def test_a_cluster_asks_for_a_run_and_writes_no_line_without_one(poor):
    assert "none has been heard yet" in refused(poor, nodes=3, name="train")
    passed(poor)
    assert len(poor.up(nodes=3, name="train").nodes) == 3


def test_a_stopped_machine_starts_only_under_a_run_or_with_no_guard(make_lab, power):
    lab = make_lab(STOPS)
    passed(lab)
    row = stop(lab.session, lab.up(name="fox").machine, why="test")
    lab.later(hours=1)
    with pytest.raises(InvalidRequest, match="should come every 10m"):
        start(lab.session, row, new_lease(lab.session, row, None))
    assert lab.machines() == []
    row = start(lab.session, row, new_lease(lab.session, row, None), no_guard=True)
    assert row.guards.waived is True
    row = stop(lab.session, row, why="test")
    passed(lab, minutes=1)
    assert start(lab.session, row, new_lease(lab.session, row, None)).guards.waived is False


def test_every_verb_says_first_that_the_run_fell_silent_and_again_nothing_once_it_is_heard(poor, monkeypatch, capsys):
    passed(poor)
    poor.up(name="fox")
    poor.later(minutes=20)
    assert unguarded_sentence(poor.session) is None
    poor.later(hours=3)
    said = unguarded_sentence(poor.session)
    assert said.startswith("Only scheduled runs of the reaper can end fox, and the last one")
    poor.said.clear()
    list_machines(poor.session)
    assert poor.said[0] == said
    from cloudgpu.control.outage import opening

    real = opening.open_session
    monkeypatch.setenv("CLOUDGPU_HOME", str(poor.home))
    monkeypatch.setattr(opening, "open_session", lambda *a, **k: real(*a, **{**k, "clock": poor.clock}))
    for words in (["ls"], ["show", "fox"], ["cost"], ["budget", "ls"]):
        capsys.readouterr()
        assert run(words) == 0
        err = " ".join(capsys.readouterr().err.split())
        assert err.startswith("Only scheduled runs of the reaper can end fox"), words
        assert err.count("Only scheduled") == 1
    capsys.readouterr()
    assert run(["up", "--gpu", "v100", "--new", "--dry-run", "-o", "json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["field"] == "--no-guard"
    passed(poor)
    assert unguarded_sentence(poor.session) is None


def test_the_nodes_of_a_cluster_that_nothing_guards_are_ended_by_its_name(poor):
    passed(poor)
    poor.up(nodes=3, name="train")
    poor.later(hours=3)
    assert unguarded_sentence(poor.session).endswith("To end it: cloudgpu down train")


def test_the_alert_is_raised_once_and_falls_back_and_the_dead_mans_address_hears_that_it_failed(
    make_lab, power, web, monkeypatch
):
    alerts = f'[alerts]\nto = ["json://{web.place}/owner"]\ndeadman = "http://{web.place}/alive"\n'
    lab = make_lab(POOR + alerts)
    passed(lab)
    lab.up(name="fox")
    monkeypatch.setattr(platform, "node", lambda: "laptop")
    power.on_battery()
    passed(lab, minutes=20)
    passed(lab, minutes=10)  # nothing but a laptop is left
    passed(lab, minutes=10)
    monkeypatch.undo()
    posts = [body.decode() for method, _, body in web.got if method == "POST"]
    assert len([one for one in posts if "Nothing ends fox by itself now" in one]) == 1
    pings = [path for method, path, _ in web.got if method == "GET"]
    assert pings == ["/alive", "/alive", "/alive/fail", "/alive/fail"]


def test_a_steady_run_that_comes_back_raises_no_alert_of_its_own_absence(poor):
    passed(poor)
    poor.up(name="fox")
    passed(poor, hours=3)
    assert [one for one in poor.session.ledger.events("alerts") if one.body.get("key", "").startswith("guard:")] == []


def test_runs_terminate_such_a_machine_with_its_lease_and_at_renew_until(poor):
    passed(poor)
    poor.up(name="fox", policy="own")
    found = passed(poor, minutes=61)
    assert [(str(one.do), str(one.rule)) for one in found.ended] == [("terminate", "lease")]
    assert poor.machines() == []


@pytest.mark.soak
def test_the_usual_policy_only_warns_at_the_lease_and_terminates_at_renew_until(poor):
    passed(poor)
    row = poor.up(name="hen").machine
    done = [str(one.rule) for _ in range(13) for one in passed(poor, hours=6, every=360).ended]
    assert done == ["renew-until"]
    ended = poor.session.ledger.machine(row.id)
    assert ended.terminated_at is not None
    assert poor.machines() == []


def test_extend_and_hold_are_decided_by_the_ledger_alone_where_there_are_no_tags(poor):
    passed(poor)
    row = poor.up(name="fox", policy="own").machine
    extend(poor.session, plan_extension(poor.session, row, timedelta(hours=1)))
    assert passed(poor, minutes=61).ended == ()
    set_hold(poor.session, poor.session.find("fox"), poor.clock() + timedelta(hours=2))
    assert passed(poor, minutes=70).ended == ()
    assert [str(one.do) for one in passed(poor, minutes=61).ended] == ["terminate"]
    assert poor.machines() == []


def test_where_an_agent_goes_by_the_launchs_lease_that_is_extended_once_it_is_stopped(make_lab, power):
    lab = make_lab('lacks = ["Taggable", "HasTimer"]\n')
    passed(lab)
    row = lab.up(name="fox").machine
    with pytest.raises(InvalidRequest, match="The agent on fox cannot learn of another lease") as raised:
        plan_extension(lab.session, row, timedelta(hours=1))
    assert "cloudgpu hold fox 7d" in raised.value.next
    assert lab.session.ledger.machine(row.id).expires == row.expires
    planned = plan_extension(lab.session, stop(lab.session, row, why="test"), timedelta(hours=1))
    start(lab.session, planned.machine, new_lease(lab.session, planned.machine, None))
    lab.later(minutes=1)
    with pytest.raises(InvalidRequest, match="cannot learn of another lease"):  # somebody has started it since
        extend(lab.session, planned)
    row = stop(lab.session, lab.session.ledger.machine(row.id), why="test")
    later = extend(lab.session, plan_extension(lab.session, row, timedelta(hours=9)))
    assert later.expires == iso(from_iso(row.expires) + timedelta(hours=9))


def test_where_an_agent_goes_by_the_launchs_lease_a_hold_keeps_what_it_has_stopped(make_lab, power):
    lab = make_lab('lacks = ["Taggable", "HasTimer"]\n')
    passed(lab)
    row = lab.up(name="fox").machine
    until = lab.clock() + timedelta(hours=2)
    assert "its agent cannot learn of a hold" in (hold_caveat(lab.session, row, until) or "")
    assert set_hold(lab.session, row, until).hold_until == iso(until)
    row = stop(lab.session, row, why="test")
    assert hold_caveat(lab.session, row, until) is None
    assert set_hold(lab.session, row, None).hold_until is None


def test_a_busy_one_whose_agent_renews_its_lease_itself_is_renewed_in_the_ledger(tmp_path, monkeypatch, agents, power):
    fleet = Fleet(tmp_path, monkeypatch, agents.options + 'lacks = ["Taggable", "HasTimer"]\n', agents)
    fleet.policy("own", POLICY)
    fleet.up(name="fox", policy="own")
    fleet.later(minutes=58)
    agents.says(fleet.clock(), gpu=95)
    assert [one.do for one in fleet.pass_().renewed] == ["renew"]
    assert fleet.machine().expires > "2026-11-20T12:30"


@pytest.mark.soak
def test_a_busy_one_is_renewed_by_the_ledger_alone_and_an_idle_one_is_terminated_as_the_policy_says(
    tmp_path,
    monkeypatch,
    agents,
    power,
):
    fleet = Fleet(tmp_path, monkeypatch, agents.options + POOR, agents)
    fleet.policy("own", POLICY + "idle: {after: 30m, do: stop, grace: 5m}\n")
    passed(fleet)
    fleet.up(name="fox", policy="own")
    fleet.later(minutes=58)
    agents.says(fleet.clock(), gpu=95)
    assert [one.do for one in fleet.pass_().renewed] == ["renew"]
    assert fleet.machine().expires > "2026-11-20T12:30"
    rules = [str(one.rule) for minutes in (31, 6) for one in fleet.idle(minutes=minutes).ended]
    assert rules == ["idle"]
    assert fleet.machine().terminated_at is not None
    assert fleet.machines() == []


def test_an_ended_machine_is_nobodys_concern(poor):
    passed(poor)
    poor.up(name="fox")
    terminate_one(poor.session, poor.session.find("fox"), why="test")
    poor.later(hours=5)
    assert unguarded_sentence(poor.session) is None
