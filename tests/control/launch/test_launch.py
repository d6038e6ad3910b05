"""Launches on a cloud that loses replies, has no capacity, and forgets to answer: never two, never one unknown."""

from __future__ import annotations

import shutil
import stat
from dataclasses import replace
from decimal import Decimal

import pytest

from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.lifecycle.lifecycle import terminate_one
from cloudgpu.control.setup.ledger_admin import settle_ledger
from cloudgpu.core.model.instances import TAG_LEDGER, TAG_OWNER, TAG_PROJECT, TAG_SEQ
from cloudgpu.core.values.money import Money
from cloudgpu.errors import (
    AuthFailed,
    InvalidRequest,
    LaunchUncertain,
    LedgerUnavailable,
    NoCapacity,
    ProviderUnavailable,
    QuotaExceeded,
)
from cloudgpu.ledger import saved_calls as saved
from cloudgpu.testing import make_attempt
from tests.address_service import AddressService


def kinds(lab, row):
    return [event.kind for event in lab.session.ledger.events(row.id)]


def test_the_intent_stands_in_the_ledger_before_the_call_and_the_answer_after_it(lab):
    row = lab.up().machine
    assert kinds(lab, row)[:3] == ["launch_intended", "launch_settled", "instance_observed"]
    intent = next(iter(lab.session.ledger.events(row.id))).body
    assert intent["price"]["source"]
    assert intent["price"]["as_of"]
    assert intent["token"] == row.token


def test_the_saved_call_is_private_and_lives_as_long_as_the_machine(lab):
    row = lab.up().machine
    (file,) = lab.session.home.attempts.glob(f"{row.token}.*")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    terminate_one(lab.session, row, why="test")
    assert not lab.session.home.attempts.exists()


def test_no_ledger_line_holds_the_hosts_private_key(lab):
    row = lab.up().machine
    key = saved.load(lab.session.home.attempts, row.token).boot.host_private_key
    middle = key.splitlines()[2]
    assert not [event for event in lab.session.ledger.events() if middle in str(event)]


def test_a_machine_bears_its_tags_and_the_ledgers_head(lab):
    lab.up(owner="bea", project="moles")
    tags = lab.machines()[0].tags
    assert tags[TAG_LEDGER] == lab.session.ledger.id
    assert (tags[TAG_OWNER], tags[TAG_PROJECT]) == ("bea", "moles")
    assert int(tags[TAG_SEQ]) >= 1


def test_who_is_stopped_when_the_intent_is_written_has_the_call_saved(lab, monkeypatch):
    decide = lab.session.ledger.decide

    def written_and_stopped(*args, **more):
        decide(*args, **more)
        if lab.rows():
            raise KeyboardInterrupt

    monkeypatch.setattr(lab.session.ledger, "decide", written_and_stopped)
    with pytest.raises(KeyboardInterrupt):
        lab.up()
    (row,) = lab.rows()
    assert (row.launch_status, lab.machines()) == ("open", [])
    assert saved.load(lab.session.home.attempts, row.token).machine == row.id


def test_a_lost_reply_never_launches_twice(lab):
    lab.cloud.lose_reply("launch")
    with pytest.raises(ProviderUnavailable):
        lab.up()
    assert len(lab.machines()) == 1
    assert lab.rows()[0].launch_status == "open"
    lab.session = lab.opened()
    again = lab.up()
    assert len(lab.machines()) == 1
    assert (again.machine.launch_status, again.already_existed) == ("made", False)


def test_a_call_that_never_arrived_is_sent_again_and_makes_one_machine(lab):
    lab.cloud.fail_next("launch", ProviderUnavailable("the network is down"))
    with pytest.raises(ProviderUnavailable):
        lab.up()
    assert lab.machines() == []
    assert lab.up().machine.launch_status == "made"
    assert len(lab.machines()) == 1


def test_new_after_a_lost_reply_settles_that_launch_and_makes_no_second_machine(lab):
    lab.cloud.lose_reply("launch")
    with pytest.raises(ProviderUnavailable):
        lab.up(new=True)
    lab.session = lab.opened()
    assert lab.up(new=True).machine.launch_status == "made"
    assert len(lab.machines()) == 1


def test_a_listing_settles_a_lost_launch_too(lab):
    lab.cloud.lose_reply("launch")
    with pytest.raises(ProviderUnavailable):
        lab.up()
    look = sync_all(lab.session)
    assert look.unanswered == []
    assert lab.rows()[0].launch_status == "made"
    assert lab.up().already_existed
    assert len(lab.machines()) == 1


def test_a_listing_settles_a_call_that_never_arrived_only_once_it_proves_that(lab):
    lab.cloud.fail_next("launch", ProviderUnavailable("the network is down"))
    with pytest.raises(ProviderUnavailable):
        lab.up()
    proves_after = lab.cloud.token_rule.listing_proves_after
    if proves_after.total_seconds() > 0:
        sync_all(lab.session)
        assert lab.rows()[0]["attempt"] == "open"
    lab.clock.advance(proves_after.total_seconds() + 1)
    sync_all(lab.session)
    assert lab.rows() == []
    lab.up()
    assert len(lab.machines()) == 1


def test_no_capacity_takes_the_next_offer_and_records_each_attempt(lab):
    prepared = lab.prepare()
    first = prepared.offers[0].configuration.zone
    lab.cloud.exhaust(first)
    row = launch(lab.session, prepared, wait=False).machine
    assert row.zone != first
    assert row.attempt_number == 2
    outcomes = [e.body["outcome"] for e in lab.session.ledger.events(row.id) if e.kind == "launch_settled"]
    assert outcomes == ["refused", "made"]
    assert len(lab.machines()) == 1


def test_one_gpu_is_never_answered_with_a_dearer_machine_of_four(lab):
    offers = lab.prepare(gpu="v100").offers
    assert {offer.configuration.instance_type for offer in offers} == {"fake.v100.1"}


def test_no_capacity_anywhere_leaves_nothing(lab):
    prepared = lab.prepare()
    for offer in prepared.offers:
        lab.cloud.exhaust(offer.configuration.zone)
    with pytest.raises(NoCapacity):
        launch(lab.session, prepared, wait=False)
    assert lab.machines() == []
    assert lab.rows() == []
    assert not lab.session.home.attempts.exists() or not list(lab.session.home.attempts.iterdir())


@pytest.mark.parametrize("error", [QuotaExceeded("quota"), AuthFailed("expired"), InvalidRequest("bad")])
def test_what_the_next_offer_cannot_mend_is_not_tried_again(lab, error):
    lab.cloud.fail_next("launch", error)
    with pytest.raises(type(error)):
        lab.up()
    assert lab.cloud.calls["launch"] == 1
    assert lab.rows() == []
    assert lab.up().machine.launch_status == "made"


def test_an_uncertain_attempt_is_settled_before_the_next_offer_is_tried(lab):
    lab.cloud.fail_next("launch", LaunchUncertain("no answer"))
    with pytest.raises(LaunchUncertain):
        lab.up()
    assert lab.cloud.calls["launch"] == 1


def test_a_new_launch_without_an_answer_is_settled_by_the_next_one_and_makes_no_second_machine(lab):
    lab.cloud.lose_reply("launch")
    with pytest.raises(LaunchUncertain) as lost:
        lab.up(new=True)
    assert lost.value.next.endswith("cloudgpu ls --refresh. After that, --new launches another one.")
    again = lab.up(new=True)
    assert (again.already_existed, len(lab.machines()), len(lab.rows())) == (False, 1, 1)
    lab.up(new=True)
    assert len(lab.machines()) == 2


def test_a_machine_that_ended_unseen_is_not_returned(lab):
    first = lab.up().machine
    lab.cloud.terminate(first.provider_id)
    lab.later(hours=2)
    second = lab.up()
    assert not second.already_existed
    assert second.machine.id != first.id
    assert len(lab.machines()) == 1


def test_silence_is_not_absence(lab):
    row = lab.up().machine
    lab.later(hours=2)
    lab.cloud.hide("lab")
    look = sync_all(lab.session)
    assert look.unanswered
    assert lab.session.ledger.machine(row.id).terminated_at is None


def test_a_machine_missing_from_a_listing_but_known_to_get_is_alive(make_lab):
    lab = make_lab("lag_s = 600")
    row = lab.up().machine
    assert not lab.cloud.list().instances
    sync_all(lab.session)
    assert lab.session.ledger.machine(row.id).terminated_at is None


def test_a_machine_of_another_ledger_is_shown_and_never_touched(lab):
    offer = lab.prepare().offers[0]
    stranger = make_attempt(offer.configuration, key="theirs", ledger="another-ledger")
    lab.cloud.launch(stranger, deadline=lab.clock())
    look = sync_all(lab.session)
    assert [one.tags[TAG_LEDGER] for one in look.foreign] == ["another-ledger"]
    assert lab.rows() == []
    assert len(lab.machines()) == 1


def test_a_stray_of_this_ledger_is_taken_up_and_billed_not_killed(lab):
    lab.up()  # so that the ledger has an id
    offer = lab.prepare().offers[0]
    stray = make_attempt(offer.configuration, key="lost", ledger=lab.session.ledger.id)
    lab.cloud.launch(stray, deadline=lab.clock())
    look = sync_all(lab.session)
    assert any("which this ledger did not know" in sentence for sentence in look.sentences)
    assert len(lab.rows()) == 2
    assert lab.session.ledger.machine(stray.machine).price is not None
    assert len(lab.machines()) == 2


def test_an_unchanged_look_writes_one_line_per_account(lab):
    for number in range(5):
        lab.up(name=f"m-{number}")
    sync_all(lab.session)
    before = lab.session.ledger.head()[0]
    lab.later(minutes=1)
    sync_all(lab.session)
    accounts = len(lab.session.settings.accounts)
    assert lab.session.ledger.head()[0] - before == accounts


def test_down_of_a_lost_launch_ends_what_it_made(lab):
    lab.cloud.lose_reply("launch")
    with pytest.raises(ProviderUnavailable):
        lab.up()
    lab.session = lab.opened()
    row = terminate_one(lab.session, lab.rows()[0], why="test")
    assert row.terminated_at
    assert lab.machines() == []


def test_a_lost_reply_to_terminate_is_proved_by_looking(lab):
    row = lab.up().machine
    lab.cloud.lose_reply("terminate")
    assert terminate_one(lab.session, row, why="test").terminated_at
    assert lab.machines() == []


def test_a_name_that_is_taken_is_refused_before_anything_is_asked(lab):
    lab.up(name="amber-fox")
    calls = lab.cloud.calls["launch"]
    with pytest.raises(InvalidRequest) as refused:
        launch(lab.session, lab.prepare(name="amber-fox", project="other"), wait=False)
    assert refused.value.field == "--name"
    assert lab.cloud.calls["launch"] == calls
    assert len(lab.machines()) == 1


def test_a_ledger_restored_with_its_head_record_is_noticed_by_its_machines(lab, tmp_path):
    lab.up(name="one")
    kept = tmp_path / "kept"
    shutil.copytree(lab.session.home.ledger, kept)
    for number in range(3):
        lab.up(name=f"later-{number}")
    lab.session.ledger.close()
    shutil.rmtree(lab.session.home.ledger)
    shutil.copytree(kept, lab.session.home.ledger)
    lab.session = lab.opened()
    lab.later(minutes=20)
    with pytest.raises(LedgerUnavailable):
        lab.up(name="next")
    assert len(lab.machines()) == 4
    assert len(lab.rows()) == 4, "the look took up what it found"
    terminate_one(lab.session, lab.rows()[0], why="stops go on")
    with pytest.raises(LedgerUnavailable):
        lab.up(name="next")
    settle_ledger(lab.session, lab.session.integrity_problem())
    assert lab.up(name="next").machine.launch_status == "made"


def test_a_plan_that_found_a_machine_does_not_launch_another_unasked(lab):
    first = lab.up().machine
    lab.later(hours=2)
    prepared = lab.prepare()
    assert prepared.existing.id == first.id
    lab.cloud.terminate(first.provider_id)

    def refuse():
        raise InvalidRequest("not agreed to")

    with pytest.raises(InvalidRequest):
        launch(lab.session, prepared, wait=False, confirm=refuse)
    assert lab.machines() == []


def test_a_machine_that_ended_after_the_plan_is_not_replaced_by_a_dearer_one(make_lab):
    lab = make_lab('prices = { "fake.v100.1" = 2 }')
    first = lab.up(max_price=Money.usd("3")).machine
    settings = lab.home / "config.toml"
    settings.write_text(settings.read_text().replace('"fake.v100.1" = 2', '"fake.v100.1" = 5'))
    lab.session = lab.opened()
    prepared = lab.prepare(max_price=Money.usd("3"))
    assert prepared.existing.id == first.id
    lab.cloud.terminate(first.provider_id)
    lab.later(hours=2)
    with pytest.raises(NoCapacity, match="Nothing at or under"):
        launch(lab.session, prepared, wait=False)
    assert lab.machines() == []


def test_a_machine_that_ended_after_the_plan_is_replaced_at_the_planned_price_at_most(lab):
    first = lab.up().machine
    prepared = lab.prepare()
    lab.cloud.options = replace(lab.cloud.options, prices={"fake.v100.1": Decimal(50)})
    lab.cloud.terminate(first.provider_id)
    lab.later(hours=2)
    with pytest.raises(NoCapacity, match="costs more than in the plan"):
        launch(lab.session, prepared, wait=False)
    assert lab.machines() == []
    assert lab.up().machine.price.nanos_per_hour == 50 * 10**9


def test_what_keeps_a_launch_uncertain_says_the_way_out(lab):
    lab.cloud.fail_next("launch", ProviderUnavailable("the network is down"))
    with pytest.raises(ProviderUnavailable) as failed:
        lab.up()
    assert "same up again" in failed.value.next


def test_an_interrupted_launch_that_is_refused_now_goes_on_to_the_next_zone(lab):
    lab.cloud.fail_next("launch", ProviderUnavailable("the network is down"))
    with pytest.raises(ProviderUnavailable):
        lab.up()
    (open_,) = lab.rows()
    lab.cloud.exhaust(open_.zone)
    row = lab.up().machine
    assert (row.id, row.attempt_number) == (open_.id, 2)
    assert row.zone != open_.zone
    assert len(lab.machines()) == 1


def test_after_a_launch_that_was_not_made_the_next_machine_lets_its_user_in(make_lab):
    with AddressService() as service:
        lab = make_lab("reachable = true")
        file = lab.home / "config.toml"
        file.write_text(f'address_services = ["{service.url}"]\n{file.read_text()}')
        lab.session = lab.opened()
        lab.cloud = lab.session.provider("lab")
        lab.cloud.fail_next("launch", LaunchUncertain("no answer"))
        with pytest.raises(LaunchUncertain):
            lab.up()
        lab.cloud.fail_next("launch", NoCapacity("none left"))
        row = lab.up().machine
        assert lab.cloud.allowed(row.provider_id) == {"caller": "203.0.113.7/32"}
