from __future__ import annotations

from datetime import timedelta

from cloudgpu.control.activity.agents import ask_activity
from cloudgpu.control.activity.utilization import OwnMachine, own_machines, utilization_of
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.lifecycle.lifecycle import stop, terminate_one
from cloudgpu.control.lifecycle.start import new_lease, start
from cloudgpu.core.activity.utilization import GPU, IDLE, UNKNOWN, USED, Hour
from cloudgpu.core.model.launch import Network, Setup
from cloudgpu.ledger.samples.store import SampleStore, sweep
from tests.core.machines import machine

MINUTE = timedelta(minutes=1)
HOUR = 3600.0
SHOWN = {
    GPU: {"gpu": 97.0, "power": 300.0},
    USED: {"gpu": 0.0, "busy": ["kernel 1"]},
    IDLE: {"gpu": 0.0},
    UNKNOWN: {"fault": "it hangs"},
}


def live(lab, *pieces):
    """Live through (minutes, what each sample shows; None: nobody asks)."""
    (row,) = lab.rows()
    shelf = SampleStore(lab.session.home.samples, row.id)
    for length, kind in pieces:
        begin = lab.clock()
        lab.later(minutes=length)
        if kind is not None:
            times = [(begin + n * MINUTE).timestamp() for n in range(1, length + 1)]
            samples = [{"t": at, "s": 60, "cpu": 0.02, "net": 4, "disk": 0, **SHOWN[kind]} for at in times]
            shelf.keep(samples, lab.clock().timestamp() + 60, lab.clock() + MINUTE)


def start_again(lab):
    (row,) = lab.rows()
    start(lab.session, row, new_lease(lab.session, row, None))


def found(lab, since=None, until=None):
    rows, uses = lab.session.ledger.read(lambda view: (view.machines(), list(view.ended_usages())))
    return utilization_of(lab.session, rows, uses, since, until)


def sums(hours):
    """Return (GPU, otherwise used, idle, unknown) in minutes."""
    return tuple(round(sum(getattr(one, f"{kind}_s") for one in hours) / 60, 3) for kind in (GPU, USED, IDLE, UNKNOWN))


def minutes(lab, *period):
    (hours,) = found(lab, *period).values()
    return sums(hours)


def test_a_life_of_two_runs_is_split_by_what_its_samples_show(lab):
    begin = lab.clock()
    lab.up()
    live(lab, (90, GPU), (30, USED), (60, IDLE), (15, UNKNOWN), (45, None))
    stop(lab.session, lab.rows()[0], why="asked by the user")
    lab.later(hours=5)
    start_again(lab)
    live(lab, (30, GPU))
    terminate_one(lab.session, lab.rows()[0], why="asked by the user")
    lab.later(days=2)
    assert minutes(lab) == (120, 30, 60, 60)
    (hours,) = found(lab).values()
    assert {one.at.minute for one in hours} == {0}
    assert len(hours) == len({one.at for one in hours})
    assert sum(one.joules or 0 for one in hours) == 300.0 * 120 * 60
    assert minutes(lab, begin + 80 * MINUTE, begin + 125 * MINUTE) == (10, 30, 5, 0)
    assert found(lab, begin + 5 * 60 * MINUTE, begin + 8 * 60 * MINUTE) == {}


def test_it_says_the_same_years_later_when_the_samples_are_gone(lab):
    lab.up()
    live(lab, (600, GPU), (300, USED), (900, IDLE))
    terminate_one(lab.session, lab.rows()[0], why="asked by the user")
    before = found(lab)
    lab.later(days=1000)
    assert sweep(lab.session.home.samples, lab.clock()) == 2
    assert found(lab) == before
    assert minutes(lab) == (600, 300, 900, 0)


def test_a_machine_that_runs_is_counted_until_now_and_to_no_time_to_come(lab):
    lab.up()
    live(lab, (60, GPU))
    assert minutes(lab) == minutes(lab, None, lab.clock() + timedelta(days=30)) == (60, 0, 0, 0)
    lab.later(minutes=7)
    assert minutes(lab) == (60, 0, 0, 7)


def test_without_machines_or_samples_there_is_nothing_or_nothing_known(lab):
    assert found(lab) == {}
    lab.up()
    assert found(lab) == {}
    lab.later(minutes=61)
    (hours,) = found(lab).values()
    assert sums(hours) == (0, 0, 0, 61)
    assert all(one.joules is None for one in hours)


def test_each_machine_has_its_own(lab):
    lab.up()
    live(lab, (30, GPU))
    lab.up(name="other", new=True)
    lab.later(minutes=10)
    assert sorted(map(sums, found(lab).values())) == [(0, 0, 0, 10), (30, 0, 0, 10)]


# -- the machine's own word, where nobody has its samples


def speak(lab):
    """Let the machine say that it is in use now, where the cloud can read it."""
    lab.cloud.report_activity(lab.rows()[0].provider_id, lab.clock())


def test_what_it_said_itself_makes_the_time_after_idle_as_far_as_that_is_known(lab):
    lab.up()
    lab.later(minutes=60)
    speak(lab)
    lab.later(minutes=30)
    sync_all(lab.session)
    assert minutes(lab) == (0, 0, 90 - 60 - 15 - 11, 60 + 15 + 11)
    lab.later(hours=4)
    assert minutes(lab) == (0, 0, 4, 86 + 240)  # nobody has looked since
    sync_all(lab.session)
    assert minutes(lab) == (0, 0, 4 + 240, 86)


def test_of_a_machine_that_ended_too_but_not_of_a_run_before_that(lab):
    lab.up()
    lab.later(minutes=10)
    speak(lab)
    lab.later(minutes=110)
    stop(lab.session, lab.rows()[0], why="asked by the user")
    assert minutes(lab) == (0, 0, 120 - 10 - 26, 36)
    lab.later(hours=5)
    start_again(lab)
    lab.later(minutes=60)
    sync_all(lab.session)
    assert minutes(lab) == (0, 0, 0, 180)
    live(lab, (30, IDLE))
    assert minutes(lab) == (0, 0, 30, 180)


def test_samples_are_believed_before_the_word(lab):
    lab.up()
    lab.later(minutes=10)
    speak(lab)
    live(lab, (50, GPU), (60, None))
    sync_all(lab.session)
    assert minutes(lab) == (50, 0, 60 - 11, 10 + 11)


def test_where_a_machine_is_asked_for_its_word_a_look_says_nothing_of_it(make_lab):
    """As on Google Cloud: passes ask each machine, `ls --refresh` does not."""
    lab = make_lab("tells = true")
    lab.up(setup=Setup(network=Network(ssh_from=("203.0.113.7/32",))))
    lab.later(minutes=10)
    speak(lab)
    ask_activity(lab.session, lab.rows())
    assert lab.rows()[0].last_active
    lab.later(minutes=110)
    sync_all(lab.session)
    assert minutes(lab) == (0, 0, 0, 120)


def test_where_the_account_is_configured_no_more_nothing_follows_from_a_word(lab):
    lab.up()
    lab.later(minutes=10)
    speak(lab)
    lab.later(minutes=110)
    sync_all(lab.session)
    assert minutes(lab)[2] > 0
    config = lab.home / "config.toml"
    config.write_text(config.read_text().replace("[accounts.lab]", "[accounts.other]"))
    lab.session = lab.opened()
    assert minutes(lab) == (0, 0, 0, 120)


# -- one's own machines


def test_ones_own_machines_have_hours_and_what_their_gpus_drew(lab):
    at = lab.clock()
    rows = [
        machine(id="cg-1", name="desk", provider="ssh"),
        machine(id="cg-2", name="old", provider="ssh"),
        machine(id="cg-3", name="play", provider="local"),
        machine(id="cg-4", name="cloud", provider="aws"),
        machine(id="cg-5", name="asleep", provider="ssh"),
        machine(id="cg-6", name="quiet", provider="ssh"),
    ]
    hours = dict.fromkeys(("cg-3", "cg-4"), (Hour(at, 3600, 0, 0, 0, 1e6, 3600),))
    hours["cg-1"] = (
        Hour(at, gpu_s=1800, used_s=900, idle_s=900, unknown_s=0, joules=540_000.0, drawing_s=1800),
        Hour(at + timedelta(hours=1), gpu_s=3600, used_s=0, idle_s=0, unknown_s=0),
    )
    hours["cg-2"] = (Hour(at, gpu_s=0, used_s=1800, idle_s=0, unknown_s=1800),)
    hours["cg-6"] = (Hour(at, gpu_s=0, used_s=0, idle_s=3600, unknown_s=0, joules=0.0),)
    assert own_machines(rows, hours) == (
        OwnMachine("cg-1", "desk", 1.75, 1.5, 0, kwh=0.15, watts=300, measured_hours=0.5),
        OwnMachine("cg-2", "old", 0.5, 0, 0.5, kwh=None, watts=None, measured_hours=0),
        OwnMachine("cg-6", "quiet", 0, 0, 0, kwh=0, watts=None, measured_hours=0),
    )
