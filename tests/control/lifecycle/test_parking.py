"""Parked machines: whatever dies in between, never two images, nothing lost, and nothing billed after `down`."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import timedelta

import pytest

from cloudgpu.cli.render import machine_table
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.launch.budget_preview import build_plan_document
from cloudgpu.control.launch.restore import (
    move,
    plan_move,
    plan_restore,
    restore_machine,
    settle_restore,
    start_machine,
    start_stopped,
    suggest_move,
)
from cloudgpu.control.lifecycle.lifecycle import lock_machine, stop, terminate_one, terminate_with_resources
from cloudgpu.control.lifecycle.parking import park
from cloudgpu.control.lifecycle.start import new_lease, start
from cloudgpu.control.setup.ledger_admin import verify_document
from cloudgpu.core.model.facts import AttachedCost
from cloudgpu.core.model.launch import Setup, Volume
from cloudgpu.core.model.machine import can_be_restored
from cloudgpu.core.model.offers import Market, Requirements
from cloudgpu.core.model.resources import Kind
from cloudgpu.core.resources import retention as keeping
from cloudgpu.core.values.typed import parse_price
from cloudgpu.errors import (
    AuthFailed,
    InstanceNotFound,
    InvalidRequest,
    LedgerUnavailable,
    NoCapacity,
    ProviderUnavailable,
    StopUnproved,
    Unreachable,
)
from cloudgpu.ledger.sqlite.backup import restore, write_backup
from cloudgpu.testing import make_attempt
from cloudgpu.views.machines import machine_document

DATA = Setup(volume=Volume("data", 100))


def things(lab, *kinds):
    return [
        one for one in lab.cloud.resources().items if one.kind in (kinds or tuple(Kind)) and one.attached_to is None
    ]


def spot(lab, **more):
    row = lab.up(spot=True, **more).machine
    lab.later(seconds=1)
    return row


def now(lab, row):
    return lab.session.ledger.machine(row.id)


def parked(lab, **more):
    row = stop(lab.session, spot(lab, **more), why="test")
    lab.later(seconds=1)
    return row


def back(lab, row, **more):
    return restore_machine(lab.session, plan_restore(lab.session, now(lab, row), None, **more), wait=False)


def left(lab):
    """A spot machine that was taken away, whose disk was left."""
    row = spot(lab)
    lab.cloud.take(row.provider_id)
    sync_all(lab.session)
    return now(lab, row)


def kinds_kept(row):
    return [entry.kind for entry in row.retained]


def test_a_machine_that_one_read_after_the_other_does_not_find_is_parked_only_when_it_has_ended(lab, monkeypatch):
    """The end keeps the disk only where it sees it, and asks for nothing where a read does not find the machine."""
    row, real, asked = spot(lab), lab.cloud.terminate_keeping_disk, []

    def terminate_keeping_disk(machine):
        asked.append(machine)
        if len(asked) == 1:
            lab.cloud.fail_next("get", InstanceNotFound("A read that is behind."))
        else:
            real(machine)

    late = replace(lab.cloud.token_rule, listing_proves_after=timedelta(minutes=10), gone_proves_after=timedelta(0))
    monkeypatch.setattr(lab.cloud, "token_rule", late)
    monkeypatch.setattr(lab.cloud, "terminate_keeping_disk", terminate_keeping_disk)
    assert keeping.is_parking_complete(stop(lab.session, row, why="test"))
    assert (lab.machines(), len(asked)) == ([], 2)


def test_a_start_that_another_has_overtaken_says_so(lab):
    row = parked(lab)
    back(lab, row)
    lab.later(minutes=20)
    sync_all(lab.session)  # it has run for a while: its image is removed
    with pytest.raises(InvalidRequest, match="is no longer parked: it is running"):
        plan_restore(lab.session, row, None)


def test_stop_parks_a_spot_machine_as_one_image_and_nothing_else(lab):
    row = parked(lab)
    assert (row.state, row.billed, row.parked, kinds_kept(row)) == ("terminated", False, True, ["image"])
    assert keeping.is_parking_complete(row)
    assert lab.machines() == []
    (image,) = things(lab)
    assert (image.kind, image.ready, image.id) == (Kind.IMAGE, True, row.retained[0].id)


def test_compute_is_proved_ended_before_the_image_is_begun(make_lab):
    lab = make_lab("stop_s = 30\nimage_s = 600")
    row = spot(lab)
    billed = []
    lab.cloud.fail_next("save_image", lambda: billed.append(bool(lab.machines())))
    stop(lab.session, row, why="test")
    assert billed == [False]
    kinds = [event.kind for event in lab.session.ledger.events(row.id)]
    assert kinds.index("park_requested") < kinds.index("resources_retained")
    assert len(things(lab)) == 1


def test_a_spot_machine_without_a_launch_record_is_parked_when_it_cannot_be_stopped(lab):
    item = next(one for one in lab.cloud.available(Requirements(market=Market.SPOT)).items)
    spot(lab)  # the ledger has an id from its first line on
    tags = {"cloudgpu-ledger": lab.session.ledger.id, "cloudgpu-id": "cg-stray"}
    lab.cloud.launch(make_attempt(item, tags=tags, now=lab.clock()), deadline=lab.clock())
    sync_all(lab.session)
    stray = lab.session.find("cg-stray")
    assert stray.stoppable is None
    assert keeping.is_parking_complete(stop(lab.session, stray, why="test"))


def test_a_parked_machine_is_stopped_already(lab):
    row = parked(lab)
    calls = lab.cloud.calls["save_image"]
    assert stop(lab.session, row, why="again").parked
    assert lab.cloud.calls["save_image"] == calls


@pytest.mark.soak
def test_an_image_that_takes_too_long_is_said_and_the_next_look_goes_on_with_it(make_lab):
    lab = make_lab("image_s = 3600")
    row = spot(lab)
    with pytest.raises(ProviderUnavailable, match="costs no compute") as caught:
        stop(lab.session, row, why="test")
    assert "ls --refresh" in caught.value.next
    assert lab.machines() == []
    lab.later(hours=1)
    sync_all(lab.session)  # the image is made of the snapshot
    sync_all(lab.session)  # the disk is removed
    assert keeping.is_parking_complete(now(lab, row))
    assert [one.kind for one in things(lab)] == [Kind.IMAGE]


def test_a_start_brings_the_machine_back_with_its_id_key_and_name_and_removes_the_image(lab):
    row = parked(lab, name="otter", key="k1")
    again = back(lab, row)
    assert (again.id, again.name, again.key, again.attempt_number) == (row.id, "otter", "k1", 2)
    assert (again.state, again.parked, again.market) == ("running", False, "spot")
    (machine,) = lab.machines()
    assert machine.tags["cloudgpu-id"] == row.id
    assert [one.kind for one in things(lab)] == [Kind.IMAGE]  # nobody has seen it come up yet
    sync_all(lab.session)
    assert [one.kind for one in things(lab)] == [Kind.IMAGE]
    lab.later(minutes=20)
    sync_all(lab.session)
    assert things(lab) == []
    assert now(lab, row).retained == ()


def test_the_image_goes_at_once_when_the_machine_was_seen_to_come_up(lab, monkeypatch):
    monkeypatch.setattr("cloudgpu.control.launch.launch.wait_until_ready", lambda _session, row: row)
    row = parked(lab)
    again = restore_machine(lab.session, plan_restore(lab.session, row, None))
    assert (again.state, again.retained, things(lab)) == ("running", (), [])


def test_a_machine_that_does_not_come_up_keeps_its_image(lab, monkeypatch):
    def dead(_session, _row):
        raise Unreachable("it does not answer")

    row = parked(lab)
    monkeypatch.setattr("cloudgpu.control.launch.launch.wait_until_ready", dead)
    with pytest.raises(Unreachable) as caught:
        restore_machine(lab.session, plan_restore(lab.session, row, None))
    assert "its image is kept" in caught.value.message
    assert lab.machines() == []
    assert [one.kind for one in things(lab)] == [Kind.IMAGE]
    latest = now(lab, row)
    assert (latest.parked, can_be_restored(latest)) == (True, True)


def test_the_image_of_a_machine_that_runs_by_an_old_ledger_is_kept_while_the_cloud_does_not_say_so(lab, tmp_path):
    """The ledger is put back to when the machine ran, and the account lists its images and not its machines."""
    row = spot(lab)
    sync_all(lab.session)
    write_backup(lab.session.ledger, tmp_path / "copy.sqlite")
    stop(lab.session, row, why="test")
    lab.later(minutes=20)
    restore(lab.session.ledger, tmp_path / "copy.sqlite", even_if_older=True)
    lab.session.ledger.close()
    lab.session = lab.opened()
    lab.cloud = lab.session.provider("lab")
    lab.cloud.fail_next("list", ProviderUnavailable("no answer"))
    with pytest.raises(LedgerUnavailable, match="does not answer"):
        verify_document(lab.session, agree=lab.said.append)
    assert [one.kind for one in things(lab)] == [Kind.IMAGE]
    assert verify_document(lab.session, agree=lab.said.append)["settled"]
    assert [one.kind for one in things(lab)] == [Kind.IMAGE]
    latest = now(lab, row)
    assert (latest.state, kinds_kept(latest)) == ("terminated", ["image"])


def test_a_start_after_a_comeback_whose_answer_was_lost_finds_the_machine(lab):
    row = parked(lab)
    lab.cloud.lose_reply("launch")
    with pytest.raises(ProviderUnavailable):
        back(lab, row)
    again = start_machine(lab.session, now(lab, row), None, wait=False)
    assert (again.id, again.state, len(lab.machines())) == (row.id, "running", 1)
    assert start_machine(lab.session, again, None, wait=False).provider_id == again.provider_id


def test_without_capacity_what_is_kept_stays(lab):
    row = parked(lab)
    plan = plan_restore(lab.session, row, None)
    for zone in ("north-a", "north-b", "south-a", "south-b"):
        lab.cloud.exhaust(zone)
    with pytest.raises(NoCapacity) as late:
        restore_machine(lab.session, plan, wait=False)
    with pytest.raises(NoCapacity) as early:
        plan_restore(lab.session, row, None)
    assert "remain" in late.value.message
    assert "remain" in early.value.message
    assert "cloudgpu start" in late.value.next
    assert "--move" in early.value.next
    assert keeping.is_parking_complete(now(lab, row))
    for zone in ("north-a", "north-b"):
        lab.cloud.refill(zone)
    assert back(lab, row).state == "running"
    assert len(lab.machines()) == 1


def test_a_comeback_keeps_to_the_highest_price_of_the_launch_until_another_is_given(lab):
    row = parked(lab, max_price=parse_price("1.0"))
    for zone in ("north-a", "north-b", "south-a", "south-b"):
        lab.cloud.set_spot_price(row.instance_type, zone, "1.2")
    with pytest.raises(NoCapacity, match=r"Nothing at or under \$1.0000") as dear:
        start_machine(lab.session, now(lab, row), None, wait=False)
    assert f"cloudgpu start {row.name} --max-price USD" in dear.value.next
    again = start_machine(lab.session, now(lab, row), None, wait=False, max_price=parse_price("1.3"))
    assert (again.state, again.max_price) == ("running", parse_price("1.3").nanos)
    with pytest.raises(InvalidRequest, match="--max-price cannot change"):
        start_machine(lab.session, again, None, wait=False, max_price=parse_price("1.4"))


def test_a_move_keeps_to_the_highest_price_of_the_launch_until_another_is_given(lab):
    row = lab.up(max_price=parse_price("9")).machine
    lab.later(seconds=1)
    row = stop(lab.session, row, why="test")
    lease = new_lease(lab.session, row, None)
    assert plan_move(lab.session, row, lease).machine.max_price == parse_price("9").nanos
    assert plan_move(lab.session, row, lease, parse_price("9")).machine.max_price == parse_price("9").nanos


def test_up_compares_a_request_with_the_comeback_and_not_with_the_first_launch(lab):
    def options(**more):
        return [
            one["option"] for one in build_plan_document(lab.session, lab.prepare(spot=True, **more))["differences"]
        ]

    row = parked(lab, max_price=parse_price("2"))
    start_machine(lab.session, row, None, wait=False, max_price=parse_price("3"))
    assert options(max_price=parse_price("3")) == []
    assert options(max_price=parse_price("2")) == ["--max-price"]


def test_up_with_the_same_request_returns_the_parked_machine_and_launches_none(lab):
    for more in ({}, {"key": "mine"}):
        row = parked(lab, **more)
        found = lab.up(spot=True, **more)
        assert (found.already_existed, found.machine.id, found.machine.parked) == (True, row.id, True)
        assert lab.machines() == []
        terminate_one(lab.session, row, why="test")


def test_up_finds_an_interrupted_machine_that_nobody_has_noticed_and_launches_no_second(lab):
    row = spot(lab)
    lab.cloud.take(row.provider_id)
    lab.later(seconds=5)
    found = lab.up(spot=True)
    assert (found.already_existed, found.machine.id, kinds_kept(found.machine)) == (True, row.id, ["disk"])
    assert lab.machines() == []


def test_a_new_machine_beside_a_parked_one_has_its_own_name_and_id(lab):
    row = parked(lab)
    other = lab.up(spot=True, new=True).machine
    assert other.id != row.id
    assert other.name != row.name


def test_what_an_interruption_left_is_seen_by_a_look_and_taken_up_by_start(lab):
    row = left(lab)
    assert (kinds_kept(row), row.parked, row.state_reason) == (["disk"], False, "interrupted")
    assert lab.session.find(row.name).id == row.id
    assert back(lab, row).state == "running"
    assert [one.kind for one in things(lab)] == [Kind.IMAGE]


def test_a_left_disk_is_imaged_and_removed_after_fourteen_days(lab):
    row = left(lab)
    lab.later(days=13, hours=23)
    sync_all(lab.session)
    assert [one.kind for one in things(lab)] == [Kind.DISK]
    lab.later(hours=2)
    sync_all(lab.session)
    sync_all(lab.session)
    assert [one.kind for one in things(lab)] == [Kind.IMAGE]
    assert keeping.is_parking_complete(now(lab, row))


def test_the_newest_disk_counts_when_an_older_image_is_still_there(lab):
    row = parked(lab)
    (old,) = things(lab)
    again = back(lab, row)
    lab.later(seconds=5)
    lab.cloud.take(again.provider_id)
    sync_all(lab.session)
    assert sorted(kinds_kept(now(lab, row))) == ["disk", "image"]
    third = back(lab, row)
    assert third.attempt_number == 3
    (image,) = things(lab)
    assert image.id != old.id


def test_down_removes_what_is_kept_and_proves_it(lab):
    for make in (parked, left):
        row = terminate_one(lab.session, make(lab), why="test")
        assert (row.retained, row.parked, things(lab), lab.machines()) == ((), False, [], [])
        with pytest.raises(InstanceNotFound):
            lab.session.find(row.name)


def test_down_says_what_it_could_not_prove(lab):
    row = parked(lab)
    lab.cloud.hide(row.region)
    with pytest.raises(StopUnproved, match="could not be proved"):
        terminate_one(lab.session, row, why="test")
    lab.cloud.show(row.region)
    sync_all(lab.session)  # goes on with the end that was asked
    assert things(lab) == []
    assert now(lab, row).retained == ()


def test_other_ledgers_things_are_never_touched(lab):
    row = left(lab)
    (disk,) = things(lab)
    lab.cloud.save_image(disk.id, "theirs", {**disk.tags, "cloudgpu-ledger": "led-other"})
    lab.later(days=15)
    sync_all(lab.session)
    terminate_one(lab.session, row, why="test")
    assert [one.tags["cloudgpu-ledger"] for one in things(lab)] == ["led-other"]


def test_a_silent_region_leaves_what_was_known_and_is_named(lab):
    row = left(lab)
    lab.cloud.hide(row.region)
    look = sync_all(lab.session)
    assert [gap.scope for gap in look.unanswered] == [row.region]
    assert kinds_kept(now(lab, row)) == ["disk"]


def test_what_is_left_of_a_machine_without_a_record_is_taken_into_the_ledger(lab):
    row = left(lab)
    (disk,) = things(lab)
    lab.cloud.save_image(disk.id, "lost", {**disk.tags, "cloudgpu-id": "cg-lost", "cloudgpu-name": "lost"})
    sync_all(lab.session)
    found = lab.session.find("lost")
    assert (found.id, kinds_kept(found), found.price) == ("cg-lost", ["image"], None)
    with pytest.raises(InvalidRequest, match="does not know how to launch"):
        plan_restore(lab.session, found, None)
    terminate_one(lab.session, found, why="test")
    terminate_one(lab.session, row, why="test")
    assert things(lab) == []


def test_a_stopped_machine_without_capacity_is_moved_by_image_when_that_is_asked(lab):
    row = lab.up().machine
    lab.later(seconds=1)
    row = stop(lab.session, row, why="test")
    lab.cloud.exhaust(row.zone)
    with pytest.raises(NoCapacity) as caught:
        start(lab.session, row, new_lease(lab.session, row, None))
    lease = new_lease(lab.session, row, None)
    said = suggest_move(lab.session, now(lab, row), lease, caught.value).next
    assert "--move" in said
    assert "an hour" in said
    assert plan_move(lab.session, now(lab, row), lease).offers[0].configuration.zone != row.zone
    moved = back(lab, move(lab.session, now(lab, row), why="test"), any_type=True)
    assert (moved.id, moved.state, moved.region) == (row.id, "running", row.region)
    assert moved.zone != row.zone
    assert len(lab.machines()) == 1
    assert things(lab, Kind.DISK) == []


def test_a_running_machine_is_not_moved(lab):
    row = lab.up().machine
    with pytest.raises(InvalidRequest, match="only a stopped machine"):
        plan_move(lab.session, row, new_lease(lab.session, row, None))


def test_a_machine_that_was_started_since_its_stop_was_seen_is_not_moved(lab):
    row = lab.up().machine
    lab.later(seconds=1)
    row = stop(lab.session, row, why="test")
    lab.cloud.start(row.provider_id)  # as in a cloud's console
    lab.later(seconds=1)
    plan_move(lab.session, row, new_lease(lab.session, row, None))
    with pytest.raises(InvalidRequest, match="is running: only a stopped machine is moved"):
        move(lab.session, row, why="test")
    assert [one.id for one in lab.machines()] == [row.provider_id]


@pytest.mark.parametrize("error", [ProviderUnavailable("silence"), AuthFailed("may not list disks")])
def test_what_cannot_be_looked_up_for_a_move_hides_no_missing_capacity(lab, error):
    row = lab.up().machine
    lab.later(seconds=1)
    row = stop(lab.session, row, why="test")
    lab.cloud.exhaust(row.zone)
    lab.cloud.fail_next("resources", error)
    with pytest.raises(NoCapacity) as caught:
        start_stopped(lab.session, row, new_lease(lab.session, row, None), wait=False)
    assert caught.value.next.startswith(("Try again later", "try another zone"))


def test_a_volume_is_attached_without_waiting_for_ssh_and_again_where_that_was_lost(lab):
    row = spot(lab, setup=DATA)
    (volume,) = [one for one in lab.cloud.resources().items if one.kind is Kind.VOLUME]
    assert (volume.name, volume.attached_to, volume.size_gb) == ("data", row.provider_id, 100)
    terminate_one(lab.session, row, why="test")
    lab.cloud.fail_next("attach", ProviderUnavailable("silence"))
    with pytest.raises(ProviderUnavailable) as caught:
        lab.up(spot=True, setup=DATA)
    assert "billed meanwhile" in caught.value.next
    again = lab.up(spot=True, setup=DATA)
    assert again.already_existed
    (same,) = [one for one in lab.cloud.resources().items if one.kind is Kind.VOLUME]
    assert (same.id, same.attached_to) == (volume.id, again.machine.provider_id)


def test_down_keeps_a_volume_and_names_it(lab):
    done = terminate_with_resources(lab.session, spot(lab, setup=DATA), why="test")
    assert [(one.kind, one.name) for one in done.named_resources] == [(Kind.VOLUME, "data")]
    assert [one.name for one in things(lab)] == ["data"]


# A process may die before or after any call that changes something.

CHANGES = ("terminate_keeping_disk", "save_image", "remove", "terminate", "launch")


class Died(BaseException):
    """The process is gone: nothing in it catches this."""


def dying(lab, monkeypatch, count, *, after):
    """Let the process die at its `count`-th change of the cloud, before it or after it."""
    left_over = itertools.count()

    def watched(method):
        real = getattr(lab.cloud, method)

        def call(*args, **more):
            mine = next(left_over) == count
            if mine and not after:
                raise Died
            done = real(*args, **more)
            if mine:
                raise Died
            return done

        return call

    for method in CHANGES:
        monkeypatch.setattr(lab.cloud, method, watched(method))


def cut_short(lab, monkeypatch, work, count, *, after):
    """Do `work` in a process that dies at a change; return whether it did."""
    with monkeypatch.context() as patch:
        dying(lab, patch, count, after=after)
        try:
            work()
        except Died:
            return True
    return False


def every_death(work_of):
    """Yield (count, after) for tests that go over all deaths of one piece of work."""
    return pytest.mark.parametrize(("count", "after"), [(n, a) for n in range(work_of) for a in (False, True)])


def images(lab):
    return [one for one in lab.cloud.resources().items if one.kind in (Kind.IMAGE, Kind.SNAPSHOT)]


@pytest.mark.parametrize("then", ["look", "start", "down", "stop"])
@every_death(3)
def test_a_park_that_died_is_finished_by_whatever_comes_next(lab, monkeypatch, count, after, then):
    row = spot(lab)
    assert cut_short(lab, monkeypatch, lambda: stop(lab.session, row, why="test"), count, after=after)
    lab.session = lab.opened()
    lab.cloud = lab.session.provider("lab")
    if lab.machines() and then in ("look", "start"):  # it died before it began: the machine runs as if nothing was
        sync_all(lab.session)
        assert len(lab.machines()) == 1
        return
    if then == "look":
        for _ in range(3):
            sync_all(lab.session)
            assert len(images(lab)) <= 1
        assert keeping.is_parking_complete(now(lab, row))
    elif then == "stop":
        sync_all(lab.session)
        assert keeping.is_parking_complete(stop(lab.session, now(lab, row), why="again"))
    elif then == "start":
        sync_all(lab.session)
        assert back(lab, row).state == "running"
        assert len(lab.machines()) == 1
    assert len(images(lab)) <= 1
    terminate_one(lab.session, now(lab, row), why="test")
    assert (lab.machines(), lab.cloud.resources().items) == ([], ())
    assert now(lab, row).retained == ()


@pytest.mark.parametrize("then", ["look", "start", "down"])
@every_death(2)
def test_a_comeback_that_died_makes_no_second_machine_and_loses_nothing(lab, monkeypatch, count, after, then):
    monkeypatch.setattr("cloudgpu.control.launch.launch.wait_until_ready", lambda _session, row: row)
    row = parked(lab)
    work = lambda: restore_machine(lab.session, plan_restore(lab.session, row, None))  # noqa: E731
    assert cut_short(lab, monkeypatch, work, count, after=after)
    lab.session = lab.opened()
    lab.cloud = lab.session.provider("lab")
    lab.later(seconds=1)
    assert lab.machines() or images(lab)
    if then == "look":
        sync_all(lab.session)
        lab.later(minutes=20)
        sync_all(lab.session)
        assert len(lab.machines()) + len(images(lab)) == 1
    elif then == "start":
        latest = settle_restore(lab.session, now(lab, row))
        if can_be_restored(latest):
            assert back(lab, row).state == "running"
        assert len(lab.machines()) == 1
    terminate_one(lab.session, now(lab, row), why="test")
    assert (lab.machines(), lab.cloud.resources().items) == ([], ())


@pytest.mark.parametrize("make", [parked, left, spot], ids=lambda make: make.__name__)
@every_death(1)
def test_a_down_that_died_is_finished_by_the_next_look_or_down(lab, monkeypatch, make, count, after):
    row = make(lab)
    assert cut_short(lab, monkeypatch, lambda: terminate_one(lab.session, row, why="test"), count, after=after)
    lab.session = lab.opened()
    lab.cloud = lab.session.provider("lab")
    if not lab.machines():
        sync_all(lab.session)
        sync_all(lab.session)
        assert lab.cloud.resources().items == ()
    terminate_one(lab.session, now(lab, row), why="test")
    assert (lab.machines(), lab.cloud.resources().items) == ([], ())


def test_a_machine_that_a_pass_has_just_parked_is_shown_with_what_its_disk_costs(lab):
    """The disk is in no line of what is kept before the next look: it costs all the same, and not $0.00."""
    row = spot(lab)
    with lock_machine(lab.session, row):
        row = park(lab.session, now(lab, row), why="test", finish=False)
    assert (row.parked, row.retained, row.terminated_at is not None) == (True, (), True)
    disk = AttachedCost("disk of 100 GB", 8 * 10**9, at_most=False, running=True, kept=True, named=False)
    value = machine_document(row._replace(attached_costs=(disk,)), lab.clock())
    assert value["retained_usd_per_month"] == "8"
    assert "$8.00/mo" in machine_table([value], lab.clock())
    unknown = machine_document(row, lab.clock())
    assert unknown["retained_usd_per_month"] is None, "this cloud's launch told no disk: missing is never zero"
