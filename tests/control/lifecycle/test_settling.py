"""What a look may conclude, what an end has to prove, what a second request may not do unasked."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from cloudgpu.control.inventory.listing import oldest_synced_at
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.lifecycle.lifecycle import stop, terminate_one
from cloudgpu.control.lifecycle.start import new_lease, start
from cloudgpu.control.setup.ledger_admin import verify_document
from cloudgpu.core.events.log import Draft
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.instances import State
from cloudgpu.core.model.usage import Resource
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.errors import (
    AuthFailed,
    InstanceNotFound,
    InvalidRequest,
    LaunchUncertain,
    NoCapacity,
    ProviderUnavailable,
    RateLimited,
    StopUnproved,
)
from cloudgpu.ledger.log.outbox import Outbox
from cloudgpu.ledger.sqlite.backup import restore, write_backup
from cloudgpu.testing import make_attempt


def lost(lab, **more):
    """An `up` whose call never arrived and whose process is dead."""
    lab.cloud.fail_next("launch", ProviderUnavailable("the network is down"))
    with pytest.raises(ProviderUnavailable):
        lab.up(**more)
    lab.session = lab.opened()
    lab.cloud = lab.session.provider("lab")


def slow_listing(lab, monkeypatch, meanwhile):
    """Let something happen between the cloud's answer to a listing and our writing it down.

    What is kept, which is asked for beside the listing, is answered before that.
    """
    listing, resources, known = lab.cloud.list, lab.cloud.resources, threading.Event()

    def answered():
        answer = listing()
        lab.later(seconds=1)
        known.wait(20)
        meanwhile()
        return answer

    def before(region=None):
        found = resources(region)
        known.set()
        return found

    monkeypatch.setattr(lab.cloud, "list", answered)
    monkeypatch.setattr(lab.cloud, "resources", before)


def test_sums_that_are_not_what_the_lines_say_are_made_anew_and_said(lab):
    lab.up(name="first")
    with closing(sqlite3.connect(lab.session.ledger.location)) as raw, raw:
        raw.execute("""UPDATE machine SET row = replace(row, '"name":"first"', '"name":"other"')""")
    assert [row.name for row in lab.opened().ledger.machines()] == ["other"]
    lab.session = lab.opened()
    said = []
    lab.session.report = said.append
    found = verify_document(lab.session, agree=said.append)
    assert "is not what its lines say" in found["errors"][0]
    assert not found["settled"]
    assert "rebuilt" in said[0]
    assert [row.name for row in lab.rows()] == ["first"]
    assert lab.session.ledger.verify().faults == ()


def test_a_listing_says_nothing_about_a_launch_that_came_after_it(lab, monkeypatch):
    lab.up(name="first")
    other = lab.opened()

    def meanwhile():
        launch(other, lab.prepare(name="second"), wait=False)

    slow_listing(lab, monkeypatch, meanwhile)
    sync_all(lab.session)
    assert {row.name: row.launch_status for row in lab.rows()} == {"first": "made", "second": "made"}


@contextmanager
def launching(lab, monkeypatch, dies=False):
    """Give a launch of another process that is about to send its call: called, it sends that and ends.

    `dies`: it is killed when the machine is made, before it has written that down.
    """
    other, sending, go = lab.opened(), threading.Event(), threading.Event()
    cloud = other.provider("lab")
    send = cloud.launch

    def slow(attempt, *, deadline):
        sending.set()
        go.wait(20)
        made = send(attempt, deadline=deadline)
        if dies:
            raise SystemExit
        return made

    def finished():
        go.set()
        thread.join(20)
        assert not thread.is_alive()

    monkeypatch.setattr(cloud, "launch", slow)
    prepared = lab.prepare(name="second")

    def launched():
        with suppress(SystemExit):
            launch(other, prepared, wait=False)

    thread = threading.Thread(target=launched)
    thread.start()
    assert sending.wait(20)
    lab.later(seconds=1)
    yield finished
    finished()


def test_a_launch_that_ends_well_while_a_listing_without_it_is_written_down_is_made(lab, monkeypatch):
    with launching(lab, monkeypatch) as finished:
        locked = lab.session.is_locked

        def after_it(name):
            finished()
            return locked(name)

        monkeypatch.setattr(lab.session, "is_locked", after_it)
        sync_all(lab.session)
    assert [row.launch_status for row in lab.rows()] == ["made"]
    assert lab.up(name="second").already_existed
    assert len(lab.machines()) == 1


def test_a_launch_that_is_killed_after_a_listing_without_it_was_asked_is_settled_by_another_listing(lab, monkeypatch):
    with launching(lab, monkeypatch, dies=True) as finished:
        slow_listing(lab, monkeypatch, finished)
        look = sync_all(lab.session)
    assert [row.launch_status for row in lab.rows()] == ["made"]
    assert look.sentences == ["second: an interrupted launch was found to have succeeded."]
    assert lab.up(name="second").already_existed
    assert len(lab.machines()) == 1


def test_a_sync_says_that_an_interrupted_launch_left_no_machine(lab):
    lost(lab, name="second")
    lab.later(days=2)
    assert sync_all(lab.session).sentences == ["second: an interrupted launch left no machine."]
    assert lab.rows() == lab.machines() == []


def test_a_listing_does_not_revive_what_ended_after_it(lab, monkeypatch):
    row = lab.up().machine
    other = lab.opened()
    other.pause = lab.clock.advance
    slow_listing(lab, monkeypatch, lambda: terminate_one(other, row, why="meanwhile"))
    lab.later(hours=1)
    sync_all(lab.session)
    assert lab.rows() == []
    uses = lab.session.ledger.machine(row.id).open_usage
    assert {use.resource for use in uses} <= {"disk"}  # the fake keeps it, and may be asked for disks before the end


def test_a_machine_too_young_to_be_seen_is_not_taken_for_gone(make_lab, monkeypatch):
    lab = make_lab("lag_s = 60")
    row = lab.up().machine
    get, terminate = lab.cloud.get, lab.cloud.terminate

    def visible(id_):
        young = lab.clock() - from_iso(row.intended_at) < timedelta(seconds=30)
        return "i-nobody-has-this" if young else id_

    monkeypatch.setattr(lab.cloud, "get", lambda id_: get(visible(id_)))
    monkeypatch.setattr(lab.cloud, "terminate", lambda id_: terminate(visible(id_)))
    assert terminate_one(lab.session, row, why="test").terminated_at
    assert lab.machines() == []


def test_an_end_that_was_throttled_is_asked_again(lab):
    row = lab.up().machine
    lab.cloud.fail_next("terminate", RateLimited("slow down"), times=3)
    assert terminate_one(lab.session, row, why="test").terminated_at
    assert lab.machines() == []


def test_what_stopped_by_itself_before_it_was_ended_is_billed_to_its_stop(lab):
    lab.up(name="fox")
    lab.later(hours=1)
    lab.cloud.die(lab.rows()[0].provider_id)
    died = iso(lab.clock())
    lab.later(hours=3)
    terminate_one(lab.session, lab.rows()[0], why="asked")
    ((_, use),) = [one for one in lab.session.ledger.ended_usages("") if one[1].resource == Resource.INSTANCE]
    assert (use.end, use.maybe_until) == (died, None)


@pytest.mark.soak
def test_an_end_that_never_arrives_is_not_called_proved(lab):
    row = lab.up().machine
    lab.cloud.fail_next("terminate", RateLimited("slow down"), times=1000)
    with pytest.raises(StopUnproved):
        terminate_one(lab.session, row, why="test")
    assert lab.rows()[0].id == row.id


def test_a_stop_that_was_throttled_is_asked_again(lab):
    row = lab.up().machine
    lab.cloud.fail_next("stop", RateLimited("slow down"), times=2)
    assert stop(lab.session, row, why="test").state == "stopped"


def test_a_stop_is_not_proved_while_the_machine_is_stopping_and_billed(make_lab, monkeypatch):
    """Google Cloud and Azure bill a machine until it has stopped."""
    lab = make_lab("stop_s = 30")
    row, get = lab.up().machine, lab.cloud.get

    def billed_on(id):  # noqa: A002
        seen = get(id)
        return replace(seen, billed=True) if seen.state is State.STOPPING else seen

    monkeypatch.setattr(lab.cloud, "get", billed_on)
    row = stop(lab.session, row, why="test")
    assert (row.state, row.billed) == ("stopped", False)


def test_a_start_whose_reply_was_lost_is_looked_for(lab):
    row = stop(lab.session, lab.up().machine, why="test")
    lab.later(minutes=1)
    lab.cloud.lose_reply("start")
    started = start(lab.session, row, new_lease(lab.session, row, None))
    assert started.state in ("pending", "running")
    assert lab.rows()[0].billed


def test_a_start_that_was_accepted_says_that_the_machine_may_run_though_the_next_look_got_no_answer(lab):
    row = stop(lab.session, lab.up().machine, why="test")
    lab.later(minutes=1)
    lab.cloud.fail_next("start", lambda: lab.cloud.fail_next("get", ProviderUnavailable("silence")))
    with pytest.raises(ProviderUnavailable, match="silence") as caught:
        start(lab.session, row, new_lease(lab.session, row, None))
    assert "It may be running, and billed" in caught.value.next
    assert len(lab.machines()) == 1


def test_a_start_gives_no_longer_life_than_was_agreed_at_the_launch(lab):
    row = lab.up(lease=timedelta(hours=1), renew_until=timedelta(hours=2)).machine
    lease = new_lease(lab.session, row, timedelta(hours=1))
    assert lease.renew_until - lab.clock() <= timedelta(hours=2)


def test_ending_a_launch_that_was_never_sent_sends_nothing_where_a_listing_can_tell(lab):
    lost(lab)
    lab.clock.advance(lab.cloud.token_rule.listing_proves_after.total_seconds() + 1)
    sent = lab.cloud.calls["launch"]
    assert terminate_one(lab.session, lab.rows()[0], why="test").terminated_at
    assert lab.cloud.calls["launch"] == sent


def test_a_stop_of_a_launch_that_was_never_sent_sends_nothing_where_a_listing_can_tell(lab):
    lab.cloud.fail_next("launch", ProviderUnavailable("silence"))
    with pytest.raises(ProviderUnavailable):
        lab.up()
    (row,) = lab.rows()
    with pytest.raises(InstanceNotFound):
        stop(lab.session, row, why="test")
    assert (lab.cloud.calls["launch"], lab.rows(), lab.machines()) == (1, [], [])


@pytest.mark.parametrize("end", [stop, terminate_one])
def test_a_launch_of_unknown_outcome_is_sent_again_and_ended_where_its_listing_is_not_permitted(lab, end):
    lab.cloud.lose_reply("launch")
    with pytest.raises(ProviderUnavailable):
        lab.up()
    (row,) = lab.rows()
    lab.cloud.fail_next("list", AuthFailed("not permitted to list"), times=9)
    end(lab.session, row, why="test")
    assert lab.session.ledger.machine(row.id).state in ("stopped", "terminated")


def test_a_launch_that_can_be_neither_listed_nor_sent_again_stays_open(lab):
    lost(lab)
    lab.cloud.fail_next("list", AuthFailed("not permitted to list"), times=9)
    lab.cloud.fail_next("launch", AuthFailed("not permitted to launch"))
    with pytest.raises(AuthFailed, match="not permitted to list"):
        stop(lab.session, lab.rows()[0], why="test")
    assert lab.rows()[0].launch_status == "open"


def test_ending_a_launch_for_which_there_is_no_capacity_now_succeeds(lab):
    lost(lab)
    lab.cloud.fail_next("launch", NoCapacity("none left"))
    assert terminate_one(lab.session, lab.rows()[0], why="test").launch_status in ("refused", "void")
    assert lab.machines() == []


def test_a_refusal_that_says_nothing_of_the_first_sending_ends_no_launch_before_a_listing_can(make_lab):
    lab = make_lab("lag_s = 60")
    lost(lab)
    lab.cloud.fail_next("launch", InvalidRequest("no such image"))
    with pytest.raises(LaunchUncertain):
        terminate_one(lab.session, lab.rows()[0], why="test")
    lab.clock.advance(lab.cloud.token_rule.listing_proves_after.total_seconds() + 1)
    assert terminate_one(lab.session, lab.rows()[0], why="test").launch_status == "void"
    assert lab.machines() == []


def test_a_living_machine_is_returned_though_a_killed_new_one_is_unsettled(lab):
    first = lab.up().machine
    lost(lab, new=True)

    def refuse():
        raise AssertionError("nobody asked for a second one")

    again = launch(lab.session, lab.prepare(), wait=False, confirm=refuse)
    assert (again.machine.id, again.already_existed) == (first.id, True)
    assert len(lab.machines()) == 1


def test_a_launch_is_agreed_to_once_where_a_killed_one_turns_out_to_have_made_nothing(lab):
    first = lab.up().machine
    lost(lab, new=True)
    prepared, asked = lab.prepare(), []
    lab.cloud.terminate(first.provider_id)
    lab.cloud.fail_next("launch", NoCapacity("none left"))
    again = launch(lab.session, prepared, wait=False, confirm=lambda: asked.append("launch it"))
    assert (again.already_existed, len(lab.machines()), asked) == (False, 1, ["launch it"])


def test_what_an_interrupted_launch_made_gets_the_lease_that_was_agreed_to_last(lab):
    lost(lab, lease=timedelta(hours=70))
    row = lab.up(lease=timedelta(hours=1), renew_until=timedelta(hours=1)).machine
    assert from_iso(row.renew_until) - lab.clock() <= timedelta(hours=1)
    tags = lab.machines()[0].tags
    assert int(tags["cloudgpu-renew-until"]) <= lab.clock().timestamp() + 3600


def test_a_used_key_is_refused_though_its_end_was_not_seen_yet(lab):
    row = lab.up(key="k1").machine
    prepared = lab.prepare(key="k1")
    lab.cloud.terminate(row.provider_id)
    lab.later(hours=2)
    with pytest.raises(InvalidRequest) as refused:
        launch(lab.session, prepared, wait=False)
    assert refused.value.field == "--key"
    assert lab.machines() == []


def test_a_machine_taken_up_without_its_launch_answers_the_same_request(lab):
    prepared = lab.prepare()
    lab.up()
    key = lab.rows()[0].key
    terminate_one(lab.session, lab.rows()[0], why="make room")
    generation = f"{key[:-2]}-7"
    stray = make_attempt(prepared.offers[0].configuration, key=generation, ledger=lab.session.ledger.id)
    lab.cloud.launch(stray, deadline=lab.clock())
    sync_all(lab.session)
    again = lab.up()
    assert (again.machine.id, again.already_existed) == (stray.machine, True)


def test_a_request_returns_its_machine_though_nothing_more_is_offered(lab):
    first = lab.up().machine
    for zone in ("north-a", "north-b", "south-a", "south-b"):
        lab.cloud.exhaust(zone)
    assert lab.up().machine.id == first.id


def test_a_request_returns_its_spot_machine_though_no_more_are_sold_on_spot(lab):
    first = lab.up(spot=True).machine
    # What `explain_no_match` says of a type that has no spot price now.
    sold_out = InvalidRequest("fake sells fake.v100.1 only on demand.", field="--spot", value="spot")
    lab.cloud.fail_next("available", sold_out, times=9)
    again = lab.up(spot=True)
    assert (again.already_existed, again.machine.id) == (True, first.id)
    assert len(lab.machines()) == 1


def test_a_price_that_cannot_be_had_hides_no_machine(lab):
    lab.up()
    offer = lab.prepare().offers[0]
    stray = make_attempt(offer.configuration, key="lost", ledger=lab.session.ledger.id)
    lab.cloud.launch(stray, deadline=lab.clock())
    for _ in range(2):  # of the machine that runs, and of this one
        lab.cloud.fail_next("prices", AuthFailed("not permitted"))
    sync_all(lab.session)
    row = lab.session.ledger.machine(stray.machine)
    assert row.state in ("running", "pending")
    assert row.unpriced


def test_a_look_that_nobody_answered_makes_no_view_fresh(lab):
    lab.up()
    sync_all(lab.session)
    before = oldest_synced_at(lab.session, lab.session.ledger.machines())
    lab.later(hours=5)
    lab.cloud.hide("lab")
    sync_all(lab.session)
    assert oldest_synced_at(lab.session, lab.session.ledger.machines()) == before


def test_a_broken_file_of_ours_does_not_hide_that_a_machine_has_ended(lab):
    row = lab.up().machine
    lab.session.home.known_hosts.write_text("not a known host\n")
    assert terminate_one(lab.session, row, why="test").terminated_at
    assert any("could not be cleaned up" in sentence for sentence in lab.said)


def test_a_fault_while_waiting_says_that_the_machine_is_billed(lab):
    prepared = lab.prepare()
    lab.cloud.fail_next("get", AuthFailed("the token expired"), times=100)
    with pytest.raises(AuthFailed) as fault:
        launch(lab.session, prepared, wait=True)
    assert "billed meanwhile" in fault.value.next


def test_a_new_last_activity_is_news_every_quarter_of_an_hour(lab):
    row = lab.up().machine
    for minutes in (1, 20):
        lab.later(minutes=minutes)
        lab.cloud.report_activity(row.provider_id, lab.clock())
        sync_all(lab.session)
    assert from_iso(lab.rows()[0].last_active) == lab.clock()


def test_a_settled_ledger_is_not_doubted_again_for_the_same_machine(lab):
    lab.up(name="one")
    offer = lab.prepare().offers[0]
    tags = {"cloudgpu-seq": "5000"}
    stray = make_attempt(offer.configuration, key="future", ledger=lab.session.ledger.id, tags=tags)
    lab.cloud.launch(stray, deadline=lab.clock())
    sync_all(lab.session)
    assert lab.session.integrity_problem()
    lab.session.ledger.settle("looked")
    for _ in range(2):
        lab.later(hours=1)
        sync_all(lab.session)
    assert lab.session.integrity_problem() is None


@pytest.fixture
def restored(lab, tmp_path):
    """A lab whose ledger was put back to what it was before the launch that it does not know any more."""
    lab.up(name="early")
    terminate_one(lab.session, lab.rows()[0], why="asked")
    lab.later(days=40)
    write_backup(lab.session.ledger, tmp_path / "copy.db")
    lab.up(name="lost")
    restore(lab.session.ledger, tmp_path / "copy.db", even_if_older=True)
    lab.session = lab.opened()
    return lab


def settled(lab):
    """Settle it; return who was asked, and what nobody knows."""
    done = verify_document(lab.session, agree=lab.said.append)
    assert done["settled"]
    return [one["account"] for one in done["queried"]], done["unanswered"]


def test_a_settled_ledger_says_which_accounts_were_asked(restored):
    assert settled(restored) == (["lab", "local"], [])
    assert [row.name for row in restored.rows()] == ["lost"]


@pytest.mark.parametrize(("source", "why"), [
    ("identities.json", "`lab` here was that account, and no account here is that one now"),
    ("attempts", "a saved call of this home launched lost there"),
    ("outbox", "lines in the outbox of this home name it"),
])  # fmt: skip
def test_an_account_that_this_home_knows_and_that_was_not_asked_is_named(restored, source, why):
    """All that the ledger had of it is lost, and the same name here is another account by now."""
    (call,) = (restored.home / "attempts").glob("*.json")
    identity = json.loads(call.read_text())["identity"]
    if source != "attempts":
        call.unlink()
    if source != "identities.json":
        (restored.home / "identities.json").unlink()
    if source == "outbox":
        line = Draft(
            "machine_adopted",
            "m1",
            {"identity": AccountIdentity(**identity).to_json(), "region": "x"},
            restored.clock(),
            "adopted",
        )
        ledger = restored.session.ledger
        Outbox(ledger.outbox.path.with_name("by-another-url.outbox")).add(ledger.id, [line])
    settings = (restored.home / "config.toml").read_text()
    (restored.home / "config.toml").write_text(settings.replace("cloud.json", "other.json"))
    restored.session = restored.opened()
    asked, unknown = settled(restored)
    assert (asked, [one["why"] for one in unknown]) == (["lab", "local"], [why])
    assert unknown[0]["scope"] in (identity["display_name"], f"{identity['kind']} {identity['id']}")
    assert restored.rows() == []
