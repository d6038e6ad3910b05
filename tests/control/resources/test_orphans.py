"""What is left over in the fake cloud: found with its launch, its age and its price; removed, or left, for a reason."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from cloudgpu import underway
from cloudgpu.control.inventory.retention_sync import list_resources
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.lifecycle.lifecycle import stop, terminate_one
from cloudgpu.control.lifecycle.start import start
from cloudgpu.control.resources.cleanup import CleanupResult, _is_remainder, clean, clean_document
from cloudgpu.control.resources.named import save_image
from cloudgpu.control.resources.orphans import build_orphans_document, survey
from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.model.instances import TAG_ID, TAG_IMAGE, TAG_LEDGER, TAG_OWNER, State
from cloudgpu.core.model.launch import Setup, Volume
from cloudgpu.core.model.resources import Kind
from cloudgpu.core.resources.orphan import Cleanup, CleanupOptions
from cloudgpu.core.values.naming import lock_name
from cloudgpu.errors import AuthFailed, InvalidRequest, ProviderUnavailable

DAY, WEEK = timedelta(days=1), timedelta(days=7)


def found(lab, **wish):
    return survey(lab.session, CleanupOptions(**wish)).orphans


def kinds(orphans, do=None):
    return sorted(one.what for one in orphans if do in (None, one.do))


def interrupted(lab, **more):
    """A spot machine that its cloud took: its disk stays."""
    row = lab.up(spot=True, **more).machine
    lab.cloud.take(row.provider_id)
    lab.later(minutes=1)
    sync_all(lab.session)
    return lab.session.ledger.machine(row.id)


def cleans(lab, snapshot=False, **wish):
    there = survey(lab.session, CleanupOptions(**wish))
    return clean_document(there, clean(lab.session, there.orphans, snapshot=snapshot))


def ours(lab):
    """The tags of what this ledger has made; a ledger has an id from its first line on."""
    sync_all(lab.session)
    return {TAG_LEDGER: lab.session.ledger.id}


def told(lab, kind):
    return [one for one in (*lab.cloud.resources().items, *lab.cloud.orphans().items) if one.kind is kind]


def test_the_disk_of_a_machine_that_was_taken_is_left_over_with_its_launch_and_since_when(lab):
    row = interrupted(lab, name="otter")
    lab.later(hours=2)
    (disk,) = [one for one in found(lab) if one.what == Kind.DISK]
    assert (disk.origin.id, disk.origin.name, disk.origin.owner) == (row.id, "otter", "ada")
    assert lab.clock() - disk.since == timedelta(hours=2)
    assert (disk.do, disk.why, disk.command) == (Cleanup.REMOVE, "otter has ended by itself", "cloudgpu start otter")


def test_what_has_no_known_price_is_said_to_have_none_and_is_in_no_sum(lab):
    interrupted(lab)
    lab.later(hours=2)
    document = build_orphans_document(survey(lab.session, CleanupOptions()))
    (disk,) = [one for one in document["orphans"] if one["kind"] == "disk"]
    (key,) = [one for one in document["orphans"] if one["kind"] == "key_pair"]
    assert (disk["usd_per_month"], key["usd_per_month"]) == (None, "0")
    assert (document["unpriced"], document["usd_per_month"]) == (1, "0")


def test_nothing_is_left_over_while_a_machine_runs(lab):
    lab.up()
    lab.later(hours=2)
    assert found(lab) == ()


def test_a_clean_leaves_nothing_and_the_ledger_has_a_line_for_each(lab):
    row = interrupted(lab)
    lab.later(hours=2)
    document, fault = cleans(lab)
    assert (fault, kinds_of(document)) == (None, ["disk", "key_pair"])
    assert (lab.cloud.resources().items, lab.cloud.orphans().items) == ((), ())
    lines = [one for one in lab.session.ledger.events() if one.kind == "orphan_removed"]
    assert sorted((one.body["what"], one.subject) for one in lines) == [("disk", row.id), ("key_pair", "orphans")]
    assert lab.session.ledger.machine(row.id).retained == ()
    assert lab.session.ledger.verify().faults == ()
    assert found(lab) == ()


def kinds_of(document, key="removed"):
    return sorted(one["kind"] for one in document[key])


def test_what_is_kept_by_name_is_shown_and_stays(lab):
    row = lab.up(setup=Setup(volume=Volume("data", 20))).machine
    save_image(lab.session, lab.session.ledger.machine(row.id), "keras", restart=False)
    terminate_one(lab.session, row, why="done")
    lab.later(days=30)
    stays = {one.what: one.stays for one in found(lab, older_than=WEEK) if one.do is Cleanup.STAY}
    assert stays == {"image": "on purpose", "volume": "on purpose"}
    cleans(lab)
    assert {one.kind for one in lab.cloud.resources().items} == {Kind.IMAGE, Kind.VOLUME}


def test_what_a_hold_covers_stays(lab):
    row = interrupted(lab)
    lab.later(hours=2)
    until = lab.clock() + timedelta(hours=1)
    hold_line(lab, row, until)
    (disk,) = [one for one in found(lab) if one.what == Kind.DISK]
    assert (disk.do, "is held until" in disk.stays) == (Cleanup.STAY, True)
    cleans(lab)
    assert len(told(lab, Kind.DISK)) == 1
    lab.later(hours=2)
    cleans(lab)
    assert told(lab, Kind.DISK) == []


def hold_line(lab, row, until):
    from cloudgpu.core.events.log import Draft
    from cloudgpu.core.values.times import iso

    body = {"until": iso(until), "why": "mine"}
    lab.session.ledger.append([Draft("hold_set", row.id, body, lab.clock(), f"hold:{iso(until)}")])


def test_what_another_process_is_at_stays(lab):
    row = interrupted(lab)
    lab.later(hours=2)
    with lab.opened().lock(lock_name(row.key), wait=False):
        assert {one.stays for one in found(lab)} == {f"something is under way at {row.name}"}


def test_what_another_process_took_up_after_the_look_stays(lab):
    row = interrupted(lab)
    lab.later(hours=2)
    there = survey(lab.session, CleanupOptions())
    with lab.opened().lock(lock_name(row.key), wait=False):
        outcomes = {one.orphan.what: one for one in clean(lab.session, there.orphans)}
    assert not outcomes["disk"].gone
    assert outcomes["disk"].orphan.stays == f"something is under way at {row.name}"
    assert len(told(lab, Kind.DISK)) == 1


def test_what_belongs_to_another_ledger_is_shown_where_it_costs_and_stays(lab):
    others = {TAG_LEDGER: "led-other", TAG_ID: "cg-9", TAG_OWNER: "ben"}
    for kind in (Kind.ADDRESS, Kind.KEY_PAIR, Kind.DISK):
        lab.cloud.leave(kind, "north", others)
    lab.later(hours=2)
    assert [(one.what, one.do, one.origin.owner) for one in found(lab)] == [
        ("address", Cleanup.STAY, "ben"),
        ("disk", Cleanup.STAY, "ben"),
    ]
    cleans(lab)
    assert len(lab.cloud.orphans().items) == 2


def test_what_bears_no_launch_is_said_to_be_of_one_that_is_not_known(lab):
    lab.cloud.leave(Kind.DISK, "north", ours(lab))
    lab.later(hours=2)
    (disk,) = found(lab)
    assert (disk.origin.id, disk.do) == ("", Cleanup.REMOVE)
    assert build_orphans_document(survey(lab.session, CleanupOptions()))["orphans"][0]["launch"] is None


def test_what_is_minutes_old_stays(lab):
    interrupted(lab)
    assert kinds(found(lab), Cleanup.REMOVE) == []
    lab.later(minutes=16)
    assert kinds(found(lab), Cleanup.REMOVE) == ["disk", "key_pair"]


def test_older_than_leaves_out_what_was_left_later(lab):
    interrupted(lab)
    lab.later(days=6)
    assert found(lab, older_than=WEEK) == ()
    lab.later(days=2)
    assert kinds(found(lab, older_than=WEEK)) == ["disk", "key_pair"]


def test_a_region_that_is_silent_is_named_and_the_others_are_cleaned(lab):
    for region in ("north", "south"):
        lab.cloud.leave(Kind.ADDRESS, region, ours(lab))
    lab.later(hours=1)
    lab.cloud.hide("south")
    there = survey(lab.session, CleanupOptions())
    assert [gap.scope for gap in there.unanswered] == ["south"]
    document, fault = clean_document(there, clean(lab.session, there.orphans))
    assert (fault, [one["region"] for one in document["removed"]]) == (None, ["north"])
    lab.cloud.show("south")
    assert [one.region for one in lab.cloud.orphans().items] == ["south"]


def test_a_spot_request_without_a_machine_is_cancelled_first(lab):
    row = lab.up(spot=True).machine
    lab.cloud.leave(Kind.SPOT_REQUEST, row.region, ours(lab) | {TAG_ID: row.id})
    lab.later(hours=1)
    assert found(lab) == ()
    lab.cloud.take(row.provider_id)
    assert kinds(found(lab)) == ["disk", "key_pair", "spot_request"]
    lab.later(hours=1)
    document, _ = cleans(lab)
    assert [one["kind"] for one in document["removed"]] == ["spot_request", "disk", "key_pair"]


def test_a_stopped_machine_is_shown_and_ended_only_where_that_is_said(lab):
    row = lab.up(name="heron").machine
    stop(lab.session, row, why="lunch")
    lab.later(days=2)
    machine = found(lab)[-1]
    assert (machine.what, machine.do, machine.command) == ("stopped_machine", Cleanup.STAY, "cloudgpu down heron")
    cleans(lab, older_than=DAY)
    assert lab.cloud.get(row.provider_id).state is State.STOPPED
    assert kinds(found(lab, stopped_older_than=timedelta(days=3)), Cleanup.END) == []
    document, fault = cleans(lab, stopped_older_than=DAY)
    assert (fault, [one["name"] for one in document["removed"]]) == (None, ["heron"])
    assert lab.rows() == []


def test_a_machine_that_is_stopped_elsewhere_keeps_nothing_from_being_removed(lab):
    row = lab.up(name="heron").machine
    stop(lab.session, row, why="lunch")
    assert row.region == "north"
    lab.cloud.leave(Kind.ADDRESS, "south", ours(lab))  # after the machine, in the order of the list
    lab.later(hours=1)
    document, fault = cleans(lab)
    assert (fault, kinds_of(document), kinds_of(document, "orphans")) == (None, ["address"], ["stopped_machine"])


def test_a_parked_machine_is_kept_on_purpose_until_its_end_is_asked_by_age(lab):
    row = lab.up(spot=True, name="heron").machine
    lab.later(minutes=1)
    stop(lab.session, row, why="lunch")
    lab.later(days=10)
    (image,) = [one for one in found(lab) if one.what == Kind.IMAGE]
    assert (image.do, image.stays) == (Cleanup.STAY, "heron was parked, and comes back from it")
    document, fault = cleans(lab, stopped_older_than=WEEK)
    assert (fault, "image" in kinds_of(document)) == (None, True)
    assert lab.cloud.resources().items == ()


def test_a_machine_that_was_started_after_the_look_is_not_ended(lab):
    row = lab.up(name="heron").machine
    row = stop(lab.session, row, why="lunch")
    lab.later(days=2)
    there = survey(lab.session, CleanupOptions(stopped_older_than=DAY))
    now = lab.clock().replace(microsecond=0)
    start(lab.session, row, Lease(now + timedelta(hours=1), now + timedelta(hours=2)))
    (outcome,) = clean(lab.session, there.orphans)
    assert (outcome.gone, outcome.orphan.stays) == (False, "heron was started or is held since")
    assert len(lab.machines()) == 1


def test_a_machine_that_was_shut_down_from_inside_is_shown_as_billed(lab):
    row = lab.up(name="heron").machine
    lab.cloud.shut_down(row.provider_id)
    lab.later(hours=2)
    (machine,) = found(lab, stopped_older_than=timedelta(hours=1))
    assert (machine.what, machine.command) == ("allocated_machine", "cloudgpu stop heron")
    stop(lab.session, lab.session.ledger.machine(row.id), why="its bill")
    assert [one.what for one in found(lab)] == ["stopped_machine"]


def test_an_image_is_made_first_where_that_is_asked_and_then_kept_by_name(lab):
    interrupted(lab, name="otter")
    lab.later(hours=2)
    document, fault = cleans(lab, snapshot=True)
    (disk,) = [one for one in document["removed"] if one["kind"] == "disk"]
    (image,) = lab.cloud.resources().items
    assert (fault, image.kind, disk["image"]["name"]) == (None, Kind.IMAGE, image.tags[TAG_IMAGE])
    lab.later(days=30)
    cleans(lab)
    assert lab.cloud.resources().items == (lab.cloud.resources().items[0],)


def test_an_interrupted_image_says_that_it_may_cost(lab, monkeypatch):
    monkeypatch.setattr(underway, "_abort_messages", {})
    row = lab.up(name="otter").machine
    lab.later(minutes=5)

    def killed():
        raise KeyboardInterrupt

    lab.cloud.fail_next("save_image", killed)
    with pytest.raises(KeyboardInterrupt):
        save_image(lab.session, row, "ready")
    assert underway.abort_message() == (
        "Interrupted. The image ready may be in the making, and costs once it is there: cloudgpu image ls shows it."
    )


@pytest.mark.parametrize("dies_at", ["save_image", "remove"])
def test_a_killed_clean_is_gone_on_with_and_makes_no_second_image(lab, dies_at, monkeypatch):
    monkeypatch.setattr(underway, "_abort_messages", {})
    interrupted(lab, name="otter")
    lab.later(hours=2)

    def killed():
        raise KeyboardInterrupt

    lab.cloud.fail_next(dies_at, killed)
    there = survey(lab.session, CleanupOptions())
    with pytest.raises(KeyboardInterrupt):
        clean(lab.session, there.orphans, snapshot=True)
    left = "Some orphaned resources are removed, some are not. Run the same command again to continue."
    assert underway.abort_message() == f"Interrupted. {left}"
    document, fault = cleans(lab, snapshot=True)
    assert (fault, kinds_of(document)) == (None, ["disk", "key_pair"])
    assert [one.kind for one in lab.cloud.resources().items] == [Kind.IMAGE]


def test_a_clean_that_was_killed_between_two_removals_is_finished_by_the_next(lab):
    for region in ("north", "south"):
        interrupted(lab, region=region, name=f"otter-{region}")
    lab.later(hours=2)
    before = lab.cloud.calls["remove"]

    def killed_at_the_second():
        if lab.cloud.calls["remove"] > before:
            raise KeyboardInterrupt

    lab.cloud.fail_next("remove", killed_at_the_second, times=2)
    there = survey(lab.session, CleanupOptions())
    with pytest.raises(KeyboardInterrupt):
        clean(lab.session, there.orphans)
    cleans(lab)
    assert (lab.cloud.resources().items, lab.cloud.orphans().items) == ((), ())
    assert all(row.retained == () for row in lab.session.ledger.machines())
    assert lab.session.ledger.verify().faults == ()


def test_a_removal_that_fails_keeps_none_of_the_others(lab):
    interrupted(lab)
    lab.later(hours=2)
    lab.cloud.deny("remove")
    document, fault = cleans(lab)
    assert isinstance(fault, AuthFailed)
    assert (kinds_of(document), len(document["failed"])) == (["key_pair"], 1)
    lab.cloud.permit("remove")
    assert kinds_of(cleans(lab)[0]) == ["disk"]


@pytest.mark.parametrize(("method", "code"), [("remove", 9), ("remove_orphan", 8)])
def test_a_removal_that_is_not_proved_exits_with_9_where_it_costs(lab, method, code):
    interrupted(lab)
    lab.later(hours=2)
    lab.cloud.fail_next(method, ProviderUnavailable("it is down"), times=10_000)
    document, fault = cleans(lab)
    assert fault.exit_code == code
    assert "it is down" in document["failed"][0]["message"]


def test_a_lost_reply_is_no_failure(lab):
    interrupted(lab)
    lab.later(hours=2)
    lab.cloud.lose_reply("remove")
    lab.cloud.lose_reply("remove_orphan")
    document, fault = cleans(lab)
    assert (fault, kinds_of(document)) == (None, ["disk", "key_pair"])


def test_what_is_in_use_again_stays_and_says_so(lab):
    row = lab.up(name="otter").machine
    free = lab.cloud.leave(Kind.ADDRESS, row.region, ours(lab))
    lab.later(hours=1)
    there = survey(lab.session, CleanupOptions())
    assert kinds(there.orphans, Cleanup.REMOVE) == ["address"]
    attach(lab, free, row.provider_id)
    (outcome,) = clean(lab.session, there.orphans)
    assert (outcome.gone, outcome.orphan.stays, outcome.error) == (False, "it is in use again", None)


def attach(lab, thing, machine):
    from dataclasses import replace

    with lab.cloud._store.open() as cloud:
        cloud.resources[thing] = replace(cloud.resources[thing], attached_to=machine)


def test_two_accounts_may_have_orphans_of_the_same_id(lab):
    """As two projects of Google have a firewall rule of the same name."""
    lab.cloud.leave(Kind.ADDRESS, "north", ours(lab))
    lab.later(hours=1)
    there = survey(lab.session, CleanupOptions())
    (one,) = there.orphans
    other = replace(one, account="second", do=Cleanup.STAY, stays="it is in use")
    outcomes = [CleanupResult(one, gone=True), CleanupResult(other, gone=False)]
    document, _ = clean_document(replace(there, orphans=(one, other)), outcomes)
    assert [each["account"] for each in document["removed"]] == [one.account]
    assert [each["account"] for each in document["orphans"]] == ["second"]


def test_what_others_have_removed_meanwhile_is_gone(lab):
    interrupted(lab)
    lab.later(hours=2)
    there = survey(lab.session, CleanupOptions())
    (disk,) = told(lab, Kind.DISK)
    lab.cloud.remove(disk)
    outcomes = clean(lab.session, there.orphans)
    assert all(one.gone for one in outcomes)


def test_a_launch_in_another_process_keeps_its_key_pair_while_others_clean(lab):
    """The launch is written down, and its call is on its way: a clean in between leaves all that it may use."""
    terminate_one(lab.session, lab.up(name="one").machine, why="done")
    lab.later(hours=2)
    other = lab.opened()
    seen = []

    def clean_meanwhile():
        there = survey(other, CleanupOptions())
        seen.extend(clean(other, there.orphans))

    lab.cloud.fail_next("launch", clean_meanwhile)
    lab.up(name="two")
    assert seen == []
    assert len(told(lab, Kind.KEY_PAIR)) == 1


def test_a_launch_waits_while_what_it_would_use_is_removed(lab):
    """The other way round: the clean has looked, no launch was written down, and the key pair goes just now."""
    terminate_one(lab.session, lab.up(name="one").machine, why="done")
    lab.later(hours=2)
    there, waited, second = survey(lab.session, CleanupOptions()), threading.Event(), lab.opened()
    second.pause = lambda _seconds: waited.set()
    launched = []

    def launch_meanwhile():
        thread = threading.Thread(target=lambda: launched.append(up(second)))
        launched.append(thread)
        thread.start()
        assert waited.wait(60)  # it is written down, and waits for us

    lab.cloud.fail_next("remove_orphan", launch_meanwhile)
    clean(lab.session, there.orphans)
    launched[0].join(60)
    assert launched[1].machine.state in ("pending", "running")
    assert len(told(lab, Kind.KEY_PAIR)) == 1  # made anew, after the old one was gone


def up(session):
    from cloudgpu.control.inputs.launch_request import UpRequest as Words
    from cloudgpu.control.launch.launch import launch
    from cloudgpu.control.launch.plan import prepare
    from cloudgpu.core.model.offers import Requirements

    return launch(session, prepare(session, Words(Requirements(gpu="v100"), name="two")), wait=False)


def test_two_cleanings_are_not_in_each_others_way(lab):
    interrupted(lab)
    lab.later(hours=2)
    there = survey(lab.session, CleanupOptions())
    with lab.opened().lock("orphans", wait=False), pytest.raises(ProviderUnavailable):
        clean(lab.session, there.orphans)
    assert len(told(lab, Kind.DISK)) == 1


@pytest.mark.parametrize(("silent", "do"), [("north-a", Cleanup.STAY), ("south-a", Cleanup.END)])
def test_a_machine_in_a_region_with_a_silent_zone_is_not_ended_as_long_stopped(lab, silent, do):
    """Google names each zone that does not answer."""
    row = stop(lab.session, lab.up(name="heron", region="north").machine, why="lunch")
    lab.later(days=2)
    lab.cloud.hide(silent)
    there = survey(lab.session, CleanupOptions(stopped_older_than=DAY)).orphans
    assert [one.do for one in there if one.machine == row] == [do]


def test_of_one_region_no_other_that_is_silent_is_named(lab):
    lab.up()
    lab.cloud.hide("south")
    gaps = {region: survey(lab.session, CleanupOptions(), region=region).unanswered for region in ("north", "south")}
    assert {region: [gap.scope for gap in found] for region, found in gaps.items()} == {"north": [], "south": ["south"]}


def test_an_unknown_region_is_refused_with_the_near_one(lab):
    with pytest.raises(InvalidRequest, match="did you mean 'north'"):
        survey(lab.session, CleanupOptions(), region="nort")


def test_a_look_asks_no_more_than_before(lab):
    lab.up()
    before = dict(lab.cloud.calls)
    sync_all(lab.session)
    made = {name: number - before.get(name, 0) for name, number in lab.cloud.calls.items()}
    assert (made["list"], made["resources"], made.get("orphans", 0), made.get("timers", 0)) == (1, 1, 0, 0)


def test_a_survey_asks_each_account_once(lab):
    interrupted(lab)
    before = dict(lab.cloud.calls)
    survey(lab.session, CleanupOptions())
    made = {name: number - before.get(name, 0) for name, number in lab.cloud.calls.items()}
    assert (made["list"], made["resources"], made["orphans"]) == (1, 1, 1)
    assert list_resources(lab.session, "lab").unanswered == ()


def test_the_snapshot_that_a_removed_image_left_behind_goes_with_it(lab):
    lab.up(name="otter")
    tags = {**ours(lab), TAG_ID: "cg-gone"}
    lab.cloud.leave(Kind.ADDRESS, "north", tags)
    (address,) = [one for one in lab.cloud.orphans().items if one.kind is Kind.ADDRESS]
    image, snapshot = (replace(address, id=f"{kind}-1", kind=kind) for kind in (Kind.IMAGE, Kind.SNAPSHOT))
    (orphan,) = [one for one in found(lab) if one.what == Kind.ADDRESS]
    removed = replace(orphan, what=str(Kind.IMAGE), id=image.id, resource=image)
    assert _is_remainder(removed, snapshot)
    assert not _is_remainder(removed, replace(snapshot, tags={**tags, TAG_ID: "cg-other"}))
    assert not _is_remainder(replace(removed, what=str(Kind.DISK)), snapshot)


def test_the_timer_of_a_machine_that_others_ended_is_of_this_ledger_and_goes(make_lab):
    lab = make_lab('timer = "moves"\n')
    machine = lab.up(name="otter").machine
    lab.cloud.take(machine.provider_id)
    sync_all(lab.session)
    lab.later(hours=2)
    (timer,) = [one for one in found(lab) if one.what == Kind.TIMER]
    assert (timer.origin.name, timer.do) == ("otter", Cleanup.REMOVE)
    cleans(lab)
    assert lab.cloud.timers() == {}


def test_the_timer_of_a_machine_is_in_use_under_each_name_that_its_account_has_here(make_lab):
    lab = make_lab('timer = "moves"\n')
    row = lab.up(name="otter").machine
    config = lab.home / "config.toml"
    table = config.read_text().partition("[accounts.lab]")[2]
    config.write_text(f"{config.read_text()}[accounts.eu]{table}")
    lab.session = lab.opened()
    lab.later(hours=1)
    assert [one for one in found(lab) if one.what == Kind.TIMER] == []
    cleans(lab)
    assert lab.cloud.timer(row.provider_id) is not None
