"""What the ledger is told of machines: their prices when they held, and when they were last known to be there."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudgpu.control.inputs.launch_request import UpRequest
from cloudgpu.control.inventory.sync import refresh, sync_all
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.lifecycle.lifecycle import terminate_one
from cloudgpu.core.billing.charges import spent_until_now
from cloudgpu.core.model.launch import Volume
from cloudgpu.core.model.offers import Market, Requirements
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.errors import ProviderUnavailable
from cloudgpu.testing import make_attempt


def lines(lab, row, kind):
    return [line for line in lab.session.ledger.events(row.id) if line.kind == kind]


def latest(lab, row):
    return lab.session.ledger.machine(row.id)


def spot(lab, **more):
    wish = UpRequest(Requirements(gpu="v100", market=Market.SPOT, **more), spot=True)
    return launch(lab.session, prepare(lab.session, wish), wait=False).machine


def compute(lab, row):
    """The uses of the machine itself that have ended."""
    return [
        use for subject, use in lab.session.ledger.ended_usages() if subject == row.id and use.resource == "instance"
    ]


def test_a_launch_says_what_the_machine_would_cost_on_demand_and_at_most(lab):
    row = spot(lab, max_price=Money.usd("2"))
    (line,) = lines(lab, row, "launch_intended")
    assert line.body["price"]["nanos_per_hour"] == Money.usd("0.9").nanos
    assert line.body["on_demand"]["nanos_per_hour"] == Money.usd("3").nanos
    assert line.body["max_price"] == Money.usd("2").nanos
    assert latest(lab, row).open_usage[0].on_demand == Money.usd("3").nanos


def test_a_machine_on_demand_is_its_own_measure(lab):
    (line,) = lines(lab, lab.up().machine, "launch_intended")
    assert line.body["on_demand"] == line.body["price"]
    assert line.body["max_price"] is None


def test_spot_prices_are_written_as_of_when_they_began_to_hold(lab):
    row = spot(lab)
    started = lab.clock()
    lab.later(hours=3)
    lab.cloud.set_spot_price("fake.v100.1", row.zone, "1.5", started + timedelta(hours=1))
    lab.cloud.set_spot_price("fake.v100.1", row.zone, "1.2", started + timedelta(hours=2))
    sync_all(lab.session)
    found = lines(lab, row, "price_observed")
    assert [(line.occurred_at, line.body["price"]["nanos_per_hour"]) for line in found] == [
        (iso(started + timedelta(hours=1)), Money.usd("1.5").nanos),
        (iso(started + timedelta(hours=2)), Money.usd("1.2").nanos),
    ]
    assert {line.clock for line in found} == {"provider"}
    assert spent_until_now(latest(lab, row), lab.clock()).text() == Money.usd("3.6").text()


def test_of_two_prices_that_changed_between_the_plan_and_the_launch_the_later_one_holds(lab):
    """The user took ten minutes to say yes: the plan's price is 0.9, and 1.2 is what the machine ran at."""
    prepared = prepare(lab.session, UpRequest(Requirements(gpu="v100", market=Market.SPOT), spot=True))
    planned = lab.clock()
    lab.later(minutes=10)
    zone = prepared.plan.offer.configuration.zone
    lab.cloud.set_spot_price("fake.v100.1", zone, "1.5", planned + timedelta(minutes=2))
    lab.cloud.set_spot_price("fake.v100.1", zone, "1.2", planned + timedelta(minutes=5))
    row = launch(lab.session, prepared, wait=False).machine
    lab.later(hours=1)
    sync_all(lab.session)
    sync_all(lab.session)
    assert len(lines(lab, row, "price_observed")) == 2
    assert spent_until_now(latest(lab, row), lab.clock()).text() == Money.usd("1.2").text()


def test_a_look_asks_for_the_spot_prices_of_an_account_once_and_for_none_without_spot_machines(lab):
    lab.up()
    sync_all(lab.session)
    assert lab.cloud.calls["price_history"] == 0
    wish = UpRequest(Requirements(gpu="v100", market=Market.SPOT), spot=True, new=True)
    for _ in range(3):
        spot_row = launch(lab.session, prepare(lab.session, wish), wait=False).machine
    sync_all(lab.session)
    assert lab.cloud.calls["price_history"] == 1
    sync_all(lab.session)
    assert lab.cloud.calls["price_history"] == 2
    assert lines(lab, spot_row, "price_observed") == []


def test_a_machine_that_was_taken_has_its_prices_up_to_its_end(lab):
    row = spot(lab)
    started = lab.clock()
    lab.cloud.set_spot_price("fake.v100.1", row.zone, "1.5", started + timedelta(minutes=1))
    taken = lab.cloud.interrupt(row.provider_id)
    lab.cloud.set_spot_price("fake.v100.1", row.zone, "9", taken + timedelta(minutes=8))
    lab.later(minutes=9)
    sync_all(lab.session)
    (use,) = compute(lab, row)
    assert use.end == iso(taken)
    assert [segment.nanos for segment in use.segments] == [Money.usd("0.9").nanos, Money.usd("1.5").nanos]


def test_prices_that_could_not_be_asked_when_the_end_was_seen_are_asked_by_the_next_look(lab):
    row = spot(lab)
    started = lab.clock()
    lab.cloud.set_spot_price("fake.v100.1", row.zone, "1.5", started + timedelta(minutes=1))
    lab.cloud.interrupt(row.provider_id)
    lab.later(minutes=10)
    lab.cloud.fail_next("price_history", ProviderUnavailable("silence"))
    look = sync_all(lab.session)
    assert latest(lab, row).terminated_at
    assert lines(lab, row, "price_observed") == []
    assert any("silence" in sentence for sentence in look.sentences)
    sync_all(lab.opened())
    assert len(lines(lab, row, "price_observed")) == 1
    calls = lab.cloud.calls["price_history"]
    lab.later(minutes=1)
    sync_all(lab.session)
    sync_all(lab.session)
    assert lab.cloud.calls["price_history"] <= calls + 1


def test_an_end_that_we_ask_has_the_prices_up_to_it_without_a_look(lab):
    row = spot(lab)
    lab.cloud.set_spot_price("fake.v100.1", row.zone, "1.5", lab.clock() + timedelta(minutes=30))
    lab.later(hours=1)
    terminate_one(lab.session, row, why="test")
    assert len(lines(lab, row, "price_observed")) == 1
    assert spent_until_now(latest(lab, row), lab.clock()).text() == "$1.20"


def test_a_price_history_that_does_not_answer_keeps_no_machine_from_its_end(lab):
    row = spot(lab)
    lab.cloud.fail_next("price_history", ProviderUnavailable("silence"))
    assert terminate_one(lab.session, row, why="test").terminated_at


def test_another_price_on_demand_is_written_with_since_when_it_may_have_held(make_lab):
    lab = make_lab("")
    row = lab.up().machine
    sync_all(lab.session)
    before = lab.clock()
    lab.later(hours=1)
    other = make_lab('[accounts.lab.prices]\n"fake.v100.1" = "4.5"')
    other.clock.advance((lab.clock() - other.clock()).total_seconds())
    sync_all(other.session)
    (line,) = lines(other, row, "price_observed")
    assert line.body["maybe_from"] == iso(before)
    assert line.body["price"] == line.body["on_demand"]
    assert latest(other, row).on_demand.nanos_per_hour == Money.usd("4.5").nanos
    other.later(hours=1)
    sync_all(other.session)
    assert len(lines(other, row, "price_observed")) == 1


def forget(lab, row):
    """The cloud has no such machine any more, and says nothing about it."""
    with lab.cloud._store.open() as cloud:
        del cloud.machines[row.provider_id]
        cloud.resources.clear()


def test_a_machine_that_vanished_is_billed_to_the_last_look_that_saw_it_and_may_have_been_longer(lab):
    row = lab.up().machine
    lab.later(hours=2)
    sync_all(lab.session)
    seen = lab.clock()
    lab.later(hours=3)
    forget(lab, row)
    sync_all(lab.session)
    (line,) = lines(lab, row, "instance_vanished")
    assert line.body["alive_at"] == iso(seen)
    (use,) = compute(lab, row)
    assert (use.end, use.maybe_until) == (iso(seen), iso(lab.clock()))


def test_a_machine_that_others_stopped_and_started_unseen_is_not_billed_in_between_for_sure(lab):
    row = lab.up().machine
    lab.later(hours=2)
    sync_all(lab.session)
    seen = lab.clock()
    lab.later(hours=1)
    lab.cloud.stop(row.provider_id)
    lab.later(hours=1)
    lab.cloud.start(row.provider_id)
    again = lab.clock()
    lab.later(hours=1)
    sync_all(lab.session)
    (first,) = compute(lab, row)
    assert (first.end, first.maybe_until) == (iso(seen), iso(again))
    (second,) = (use for use in latest(lab, row).open_usage if use.resource == "instance")
    assert (second.begin, second.first) == (iso(again), False)
    sync_all(lab.session)
    assert len(compute(lab, row)) == 1


def test_a_look_that_was_not_answered_proves_nothing_of_what_is_there(lab):
    row = lab.up().machine
    lab.later(hours=1)
    sync_all(lab.session)
    seen = lab.clock()
    lab.later(hours=1)
    lab.cloud.fail_next("list", ProviderUnavailable("silence"))
    sync_all(lab.session)
    lab.later(hours=1)
    forget(lab, row)
    refresh(lab.session, latest(lab, row))
    (line,) = lines(lab, row, "instance_vanished")
    assert line.body["alive_at"] == iso(seen)


def test_a_down_of_what_was_gone_long_since_bills_no_day_more(lab):
    row = lab.up().machine
    sync_all(lab.session)
    seen = lab.clock()
    forget(lab, row)
    lab.later(days=3)
    terminate_one(lab.session, row, why="test")
    (use,) = compute(lab, row)
    assert use.end == iso(seen)
    assert use.maybe_until is not None


def test_an_end_that_we_asked_is_exact(lab):
    row = lab.up().machine
    lab.later(hours=1)
    terminate_one(lab.session, row, why="test")
    (use,) = compute(lab, row)
    assert use.maybe_until is None
    assert from_iso(use.end) - from_iso(use.begin) == timedelta(hours=1)


def test_a_machine_that_never_came_up_says_so(lab):
    from cloudgpu.control.lifecycle.failed_launch import terminate_failed_launch
    from cloudgpu.errors import Unreachable

    row, well = lab.up().machine, lab.up(new=True).machine
    terminate_failed_launch(lab.session, row, Unreachable("no answer"))
    terminate_one(lab.session, well, why="test")
    assert lines(lab, row, "terminate_requested")[0].body["failed"] is True
    assert latest(lab, row).launch_failed
    assert not latest(lab, well).launch_failed


def stray(lab, market=Market.ON_DEMAND, **more):
    lab.up()  # the ledger begins with its first line
    offer = lab.prepare().offers[0]
    sold = lab.cloud.available(Requirements(gpu="v100", market=market)).items
    item = next(one for one in sold if one.zone == offer.configuration.zone)
    attempt = make_attempt(item, key="lost", ledger=lab.session.ledger.id, **more)
    return lab.cloud.launch(attempt, deadline=lab.clock() + timedelta(minutes=1)), attempt.machine


def test_a_stray_is_billed_from_its_launch_with_the_prices_that_held(lab):
    made, machine = stray(lab, Market.SPOT, now=lab.clock(), lease=timedelta(hours=8), renew=timedelta(hours=9))
    launched = lab.clock()
    lab.cloud.set_spot_price("fake.v100.1", made.zone, "1.5", launched + timedelta(hours=1))
    lab.later(hours=3)
    sync_all(lab.session)
    row = lab.session.ledger.machine(machine)
    (use,) = [use for use in row.open_usage if use.resource == "instance"]
    assert (use.begin, use.sure_from) == (iso(launched), None)  # that it has run since then, the cloud says
    assert [segment.nanos for segment in use.segments] == [Money.usd("0.9").nanos, Money.usd("1.5").nanos]
    assert use.on_demand == Money.usd("3").nanos
    assert spent_until_now(row, lab.clock()).text() == "$3.90"


def test_a_stray_has_its_disk_beside_it(lab):
    _, machine = stray(lab, now=lab.clock())
    sync_all(lab.session)
    row = lab.session.ledger.machine(machine)
    assert [(entry.resource, entry.kept) for entry in row.attached_costs] == [("disk", True)]
    assert [use.resource for use in row.open_usage].count("disk") == 1


def test_a_stray_whose_disks_are_not_told_says_that_they_are_not_known(lab):
    _, machine = stray(lab, now=lab.clock())
    for _ in range(2):
        lab.cloud.fail_next("resources", ProviderUnavailable("silence"))
    sync_all(lab.session)
    (line,) = [line for line in lab.session.ledger.events(machine) if line.kind == "machine_adopted"]
    assert "what its disks cost is not known" in line.body["why"]


def test_an_unchanged_look_writes_one_line(lab):
    spot(lab, region="north")
    lab.up(new=True)
    sync_all(lab.session)
    before = lab.session.ledger.head()[0]
    lab.later(minutes=5)
    sync_all(lab.session)
    written = [line.subject for line in lab.session.ledger.events() if line.seq > before]
    places = [lab.session.provider(name).identity().id for name in ("lab", "local")]
    assert written == [f"scope:fake/{places[0]}", f"scope:local/{places[1]}"]  # one for each account


# --- what is kept by name ------------------------------------------------------------------------------------------


@pytest.fixture
def attach_volume(lab):
    from cloudgpu.core.model.launch import Setup

    wish = UpRequest(Requirements(gpu="v100"), setup=Setup(volume=Volume("data", 50)))
    return launch(lab.session, prepare(lab.session, wish), wait=False).machine


def things(lab):
    return [row for row in lab.session.ledger.billable_machines() if row.is_named_resource]


def test_a_volume_is_billed_by_its_own_line_and_not_with_the_machine(lab, attach_volume):
    (thing,) = things(lab)
    assert (thing.name, thing.terminated_at, thing.open_usage[0].quantity) == ("data", None, 50)
    entry = next(entry for entry in attach_volume.attached_costs if entry.named)
    assert entry.what == "volume data"
    assert "volume data" not in [use.what for use in latest(lab, attach_volume).open_usage]
    terminate_one(lab.session, attach_volume, why="test")
    (thing,) = things(lab)
    assert thing.terminated_at is None
    assert thing.retained[0].attached_to is None


def test_a_volume_that_is_removed_ends_at_once_and_one_that_others_removed_when_it_was_last_seen(lab, attach_volume):
    from cloudgpu.control.resources.named import find_named, remove
    from cloudgpu.core.model.resources import Kind

    terminate_one(lab.session, attach_volume, why="test")
    sync_all(lab.session)
    lab.later(hours=1)
    remove(lab.session, find_named(lab.session, Kind.VOLUME, "data", None))
    (thing,) = things(lab)
    assert from_iso(thing.terminated_at) == lab.clock()
    (use,) = [use for subject, use in lab.session.ledger.ended_usages() if subject == thing.id and use.quantity == 50]
    assert (use.end, use.maybe_until) == (iso(lab.clock()), None)


def test_a_volume_that_others_removed_ends_some_time_after_it_was_last_seen(lab, attach_volume):
    terminate_one(lab.session, attach_volume, why="test")
    sync_all(lab.session)
    seen = lab.clock()
    lab.later(hours=1)
    lab.cloud.fail_next("resources", ProviderUnavailable("silence"))
    sync_all(lab.session)
    assert things(lab)[0].terminated_at is None
    lab.later(hours=1)
    with lab.cloud._store.open() as cloud:
        cloud.resources.clear()
    sync_all(lab.session)
    (thing,) = things(lab)
    (use,) = [use for subject, use in lab.session.ledger.ended_usages() if subject == thing.id]
    assert (use.end, use.maybe_until) == (iso(seen), iso(lab.clock()))


def test_a_volume_of_which_the_ledger_was_not_told_is_billed_from_when_it_was_made(lab, attach_volume):
    made = things(lab)[0].retained[0].made_at
    fresh = [line for line in lab.session.ledger.events() if line.kind == "resource_observed"]
    assert len(fresh) == 1
    assert things(lab)[0].open_usage[0].begin == made
