"""The live check on the fake cloud: whatever goes wrong, it ends what it has launched, and says what is left."""

from __future__ import annotations

import shutil
from decimal import Decimal

import pytest

from cloudgpu.control.launch.launch import launch
from cloudgpu.control.setup.live_check import _TrialInProgress, max_cost_of, plan_trials, run_trial
from cloudgpu.core.billing.charges import spent_until_now
from cloudgpu.core.model.checks import exit_code_of_checks
from cloudgpu.core.model.instances import Address
from cloudgpu.core.model.offers import Market
from cloudgpu.core.values.money import Money
from cloudgpu.errors import AuthFailed, InvalidRequest, NoCapacity, ProviderUnavailable, QuotaExceeded
from tests.access.sshserver import USER, Server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A real SSH server, behind all machines of this file."""
    one = Server(tmp_path_factory.mktemp("ssh")).start()
    yield one
    one.kill()


@pytest.fixture
def reachable(make_lab, server):
    """A fake cloud whose machines answer SSH with the key of the launch, to this user's key."""
    lab = make_lab(f'host_key = "{server.host_key.public_line}"')
    shutil.copytree(server.root / "keys", lab.session.home.keys)
    lab.cloud.address = Address("127.0.0.1", server.port, USER)
    return lab


def names(trial):
    return [(stage.name, stage.ok) for stage in trial.stages]


def small(lab):
    (prepared,) = plan_trials(lab.session)
    return prepared


def code(trial):
    return exit_code_of_checks(stage.exit_code for stage in trial.stages)


def silence():
    return ProviderUnavailable("no answer")


def takes(lab, seconds):
    """Let a call take its time on the manual clock."""
    return lambda: lab.clock.advance(seconds)


def test_a_whole_life_goes_well_and_leaves_nothing(reachable):
    for call in ("stop", "start"):
        reachable.cloud.fail_next(call, takes(reachable, 20))
    begun = []
    trial = run_trial(reachable.session, small(reachable), begun.append)
    order = ["launch", "listed", "permitted", "ssh", "stop", "start", "ssh again", "down", "leftovers"]
    assert names(trial) == [(name, True) for name in order]
    assert [one.rpartition(": ")[2] for one in begun] == order
    assert [stage.seconds for stage in trial.stages if stage.name in ("stop", "start")] == [20, 20]
    assert trial.ok
    assert reachable.machines() == []
    assert reachable.rows() == []


def test_its_timer_in_the_cloud_is_read_back_where_there_is_one(make_lab, server):
    lab = make_lab(f'timer = "moves"\nhost_key = "{server.host_key.public_line}"')
    shutil.copytree(server.root / "keys", lab.session.home.keys)
    lab.cloud.address = Address("127.0.0.1", server.port, USER)
    lab.cloud.fail_next("stop", takes(lab, 20))
    lab.cloud.fail_next("start", takes(lab, 20))
    trial = run_trial(lab.session, small(lab))
    (stage,) = (stage for stage in trial.stages if stage.name == "timer")
    assert stage.ok
    assert trial.ok, [one for one in trial.stages if not one.ok]
    assert "fires at" in stage.message
    lab.cloud.fail_next("set_timer", silence())
    trial = run_trial(lab.session, small(lab))
    assert names(trial)[-3:] == [("timer", False), ("down", True), ("leftovers", True)]


def test_what_it_cost_is_the_ledgers_word(reachable):
    reachable.cloud.fail_next("stop", takes(reachable, 360))
    trial = run_trial(reachable.session, small(reachable))
    (row,) = reachable.session.ledger.machines()
    assert (
        trial.cost.nanos == spent_until_now(row, reachable.session.clock()).nanos >= Money.usd(Decimal("0.01")).nanos
    )  # 0.10 an hour, six minutes


def test_the_small_machine_is_on_demand_and_without_a_gpu(lab):
    item = small(lab).plan.offer.configuration
    assert (item.instance_type, item.market, item.accelerators) == ("fake.cpu", Market.ON_DEMAND, ())


def test_a_gpu_is_tried_beside_the_small_machine_where_it_is_asked_for(lab):
    first, second = plan_trials(lab.session, gpu="v100", region="south")
    assert (first.plan.offer.configuration.instance_type, second.plan.offer.configuration.instance_type) == (
        "fake.cpu",
        "fake.v100.1",
    )
    assert {each.plan.offer.configuration.region for each in (first, second)} == {"south"}


def test_the_ceiling_covers_the_lease_of_the_launch_and_that_of_the_start(lab):
    at_most, gaps = max_cost_of(plan_trials(lab.session, gpu="v100"))
    assert (at_most, gaps) == (Money.usd(Decimal("3.10")), False)


def test_planning_launches_and_writes_nothing(lab):
    plan_trials(lab.session, gpu="v100")
    assert lab.cloud.calls["launch"] == 0
    assert lab.session.ledger.machines() == []


@pytest.mark.soak
def test_an_unreachable_machine_is_ended_all_the_same(lab):
    """The fake's machines have no address."""
    trial = run_trial(lab.session, small(lab))
    assert names(trial) == [
        ("launch", True),
        ("listed", True),
        ("permitted", True),
        ("ssh", False),
        ("down", True),
        ("leftovers", True),
    ]
    assert (code(trial), trial.remaining) == (10, ())
    assert lab.machines() == []


def test_a_refused_launch_leaves_nothing_to_end(lab):
    prepared = small(lab)
    lab.cloud.fail_next("launch", QuotaExceeded("the quota is 0", next="raise it"))
    trial = run_trial(lab.session, prepared)
    assert names(trial) == [("launch", False)]
    assert (trial.name, trial.cost, trial.remaining, code(trial)) == (None, None, (), 5)
    assert trial.stages[0].next == "raise it"


def test_a_launch_whose_reply_was_lost_is_found_and_ended(lab):
    prepared = small(lab)
    lab.cloud.lose_reply("launch", times=1)
    trial = run_trial(lab.session, prepared)
    assert names(trial) == [("launch", False), ("down", True), ("leftovers", True)]
    assert code(trial) == 8
    assert lab.machines() == []
    assert lab.rows() == []


def test_no_capacity_is_said_before_anything_is_launched(lab):
    for zone in ("north-a", "north-b", "south-a", "south-b"):
        lab.cloud.exhaust(zone)
    with pytest.raises(NoCapacity):
        plan_trials(lab.session)


def test_a_stop_that_is_not_proved_is_the_gravest_and_the_machine_is_ended(reachable):
    reachable.cloud.fail_next("stop", silence, times=1_000)
    trial = run_trial(reachable.session, small(reachable))
    assert names(trial)[4:] == [("stop", False), ("down", True), ("leftovers", True)]
    assert code(trial) == 9
    assert reachable.machines() == []


@pytest.mark.soak
def test_an_end_that_is_not_proved_names_the_machine_and_the_command(lab):
    lab.cloud.fail_next("terminate", silence, times=1_000)
    trial = run_trial(lab.session, small(lab))
    assert code(trial) == 9
    assert trial.remaining == (f"{trial.name} may still be billed: cloudgpu down {trial.name}",)
    assert not trial.ok
    assert len(lab.machines()) == 1  # it says so because it is true


def ended(lab, *faults):
    """Launch and end a machine with these faults of the cloud at its end; return what came of it."""
    trial = _TrialInProgress(lab.session, small(lab), lambda _: None)
    launch(trial.session, trial.prepared, wait=False)
    for call, fault, times in faults:
        lab.cloud.fail_next(call, fault, times=times)
    trial.end_machine()
    return trial.result()


def test_an_end_that_is_refused_names_the_machine_and_the_command(lab):
    trial = ended(lab, ("terminate", AuthFailed("no"), 9))
    assert (names(trial), len(lab.machines())) == ([("down", False)], 1)
    assert trial.remaining == (f"{trial.name} may still be billed: cloudgpu down {trial.name}",)


def test_a_cloud_that_does_not_say_what_is_left_has_not_said_that_nothing_is(lab):
    lab.cloud.hide("south")  # of the machine's own region, which is asked alone
    trial = ended(lab, ("resources", lambda: None, 1), ("resources", lambda: lab.cloud.hide("north"), 1))
    assert (names(trial), trial.ok) == ([("down", True), ("leftovers", False)], False)
    assert trial.remaining == (f"what {trial.name} has left may still be billed: cloudgpu orphans",)


def interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize("call", ["launch", "get", "list", "stop", "start"])
def test_an_interruption_at_any_stage_ends_the_machine_first(reachable, call):
    prepared = small(reachable)
    reachable.cloud.fail_next(call, interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_trial(reachable.session, prepared)
    assert reachable.machines() == []
    assert reachable.rows() == []


def test_a_second_interruption_says_what_may_still_be_billed(lab):
    lab.cloud.fail_next("terminate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_trial(lab.session, small(lab))
    (machine,) = lab.rows()
    assert lab.said[-1] == f"{machine.name} may still be billed. Run: cloudgpu down {machine.name}"


def test_a_gpu_that_cannot_be_read_is_refused(lab):
    with pytest.raises(InvalidRequest, match="names no GPU"):
        plan_trials(lab.session, gpu="v100:0")


@pytest.mark.parametrize(("codes", "counts"), [((), 0), ((0, 4), 4), ((10, 8), 8), ((8, 9, 10), 9), ((2, 6), 6)])
def test_nine_counts_before_eight_before_the_rest(codes, counts):
    assert exit_code_of_checks(codes) == counts


def test_what_is_denied_is_found_once_there_is_a_machine(reachable):
    reachable.cloud.deny("save_image")
    trial = run_trial(reachable.session, small(reachable))
    assert names(trial) == [
        ("launch", True),
        ("listed", True),
        ("permitted", False),
        ("down", True),
        ("leftovers", True),
    ]
    assert "fake:save_image is denied: it is needed to make images." in trial.stages[2].message
    assert code(trial) == 6


@pytest.mark.soak
def test_silence_about_what_is_left_is_not_taken_for_nothing(lab):
    prepared = small(lab)
    lab.cloud.fail_next("resources", lambda: None)  # that of `down`
    lab.cloud.fail_next("resources", silence, times=100)
    trial = run_trial(lab.session, prepared)
    assert names(trial)[-2:] == [("down", True), ("leftovers", False)]
    assert trial.remaining == (f"what {trial.name} has left may still be billed: cloudgpu orphans",)
    assert code(trial) == 8


def test_a_machine_is_ended_and_named_where_the_ledger_is_lost_meanwhile(reachable):
    """The ledger's file is damaged before the stop: its rows cannot be read any more."""
    file = reachable.session.home.ledger / "ledger.db"

    def damage():
        damaged = file.with_name("damaged")
        damaged.write_bytes(b"no ledger " * 1000)
        for suffix in ("-wal", "-shm"):
            file.with_name(file.name + suffix).unlink(missing_ok=True)
        damaged.replace(file)

    reachable.cloud.fail_next("stop", damage)
    trial = run_trial(reachable.session, small(reachable))
    assert names(trial)[-2:] == [("stop", False), ("down", False)]
    assert "the ledger does not know it yet" in trial.stages[-1].message
    assert reachable.machines() == []
    assert (trial.ok, trial.remaining) == (False, ())
    assert trial.name is not None
