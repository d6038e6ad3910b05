"""Launches, ends, bills and runs of the reaper on our model of vast.ai, in this process, on the model's clock.

What is billed is held to the model's own meters. The model never was vast.ai.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from cloudgpu.control.cost.cost import cost_document
from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.lifecycle.lease import extend, plan_extension
from cloudgpu.control.lifecycle.lifecycle import stop, terminate_one
from cloudgpu.control.lifecycle.start import new_lease, start
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.pricing.traffic import record_traffic
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.control.resources.orphans import survey
from cloudgpu.core.billing.charges import spent_until_now
from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.model.offers import Market, Requirements
from cloudgpu.core.resources.orphan import Cleanup, CleanupOptions
from cloudgpu.errors import InvalidRequest, LaunchUncertain
from tests.clouds.vast.contracts import Contract
from tests.clouds.vast.server import FIRST

CONFIG = 'provider = "vast"\nowner = "ada"\naddress_services = []\n[accounts.lab]\nprovider = "vast"\n'
HOUR = 3600


class Lab:
    """One user's home, with an account at the model."""

    def __init__(self, home, vast, name="home"):
        self.vast = vast
        place = home / name
        place.mkdir(mode=0o700)
        (place / "config.toml").write_text(CONFIG)
        self.session = open_session({"CLOUDGPU_HOME": str(place), "USER": "ada"}, clock=vast.clock.now)
        self.session.pause = vast.advance
        sync_all(self.session)

    def up(self, **words):
        """Launch one, and return its row."""
        asked = {"gpu": "rtx4090", "region": "US", "name": "bear", "no_guard": True, **words}
        return launch(self.session, prepare(self.session, parse_request(**asked)), wait=False).machine

    def row(self, machine):
        return self.session.ledger.machine(machine.id)

    def asked(self, verb):
        """Return how often each action was called in this."""
        begun = len(self.vast.calls)
        verb()
        return Counter(call.action for call in self.vast.calls[begun:])


def ledgers(lab):
    """Return what the ledger says was spent so far, in USD."""
    return Decimal(str(cost_document(lab.session)["total"]["usd"]))


@pytest.fixture
def lab(vast, tmp_path):
    return Lab(tmp_path, vast)


def test_a_day_costs_what_the_meters_say(vast, lab):
    machine = lab.up()
    vast.advance(8 * HOUR)
    stop(lab.session, lab.row(machine), why="a test")
    vast.advance(16 * HOUR)
    terminate_one(lab.session, lab.row(machine), why="a test")
    (id_,) = [str(one) for one in vast.contracts]
    meters = vast.bill(id_)
    assert vast.living() == []
    assert abs(meters["gpu"] - Decimal("2.72")) < Decimal("0.01")  # 8 h at $0.34
    assert abs(meters["storage"] - Decimal("12.8") * 24 / 730) < Decimal("0.01")
    assert abs(ledgers(lab) - meters["gpu"] - meters["storage"]) < Decimal("0.02")  # a month of 30 days is the ledger's
    assert meters["traffic"] == 0


def test_a_contract_that_costs_more_than_its_plan_said_is_in_the_ledger_at_its_own_price(vast, lab):
    asked = parse_request(gpu="rtx4090", region="US", name="bear", no_guard=True)
    plan = prepare(lab.session, asked)
    for host in vast.hosts:
        host.dph_base *= 2
    machine = launch(lab.session, plan, wait=False).machine
    vast.advance(HOUR)
    terminate_one(lab.session, lab.row(machine), why="a test")
    (meters,) = (vast.bill(str(one)) for one in vast.contracts)
    assert meters["gpu"] > Decimal("0.6")
    assert abs(ledgers(lab) - meters["gpu"] - meters["storage"]) < Decimal("0.02")


def test_hours_of_a_host_that_is_offline_are_counted_but_are_not_sure(vast, lab):
    machine = lab.up()
    sync_all(lab.session)
    vast.advance(HOUR)
    sync_all(lab.session)
    id_ = lab.row(machine).provider_id
    vast.go_offline(id_)
    for _ in range(6):
        vast.advance(HOUR)
        sync_all(lab.session)
    total = cost_document(lab.session)["total"]
    price, gpu = Decimal("0.34"), vast.bill(id_)["gpu"]
    storage = Decimal("12.8") * 7 / 720  # which is not taken off (docs/vast.md)
    assert abs(gpu - price) < Decimal("0.01")
    assert abs(Decimal(total["low_usd"]) - gpu - storage) < Decimal("0.01")
    assert abs(Decimal(total["usd"]) - 7 * price - storage) < Decimal("0.01")
    vast.come_back(id_)
    sync_all(lab.session)
    vast.advance(HOUR)
    terminate_one(lab.session, lab.row(machine), why="a test")
    assert abs(Decimal(cost_document(lab.session)["total"]["low_usd"]) - vast.bill(id_)["gpu"] - storage) < Decimal(
        "0.03"
    )


def test_traffic_is_billed_both_ways_at_the_hosts_own_prices(vast, lab):
    machine = lab.up()
    (contract,) = vast.contracts.values()
    contract.sent, contract.received = 3 * 10**9, 7 * 10**9
    vast.advance(HOUR)
    now = lab.session.clock()
    before = spent_until_now(lab.row(machine), now).dollars
    since = {"since": now.timestamp() - HOUR}
    counters = {"sent": {"bytes": contract.sent, **since}, "received": {"bytes": contract.received, **since}}
    record_traffic(lab.session, lab.row(machine), {"heartbeat": now.timestamp(), **counters})
    asked = vast.bill(str(contract.id))["traffic"]
    assert asked == Decimal("0.026")  # 3 GB at $0.004 and 7 GB at $0.002
    assert spent_until_now(lab.row(machine), now).dollars - before == asked
    terminate_one(lab.session, lab.row(machine), why="a test")


def test_a_refusal_that_left_a_contract_is_in_the_ledger_and_the_next_offer_is_rented(vast, lab):
    vast.dwell(ending=30)
    vast.refuse_with_contract()
    machine = lab.up(region=None)
    left, kept = vast.contracts.values()
    assert left.ended is not None
    assert [one.id for one in vast.living()] == [kept.id]
    assert lab.row(machine).provider_id == str(kept.id)
    rows = {row.provider_id: row for row in lab.session.ledger.machines()}
    assert (rows[str(left.id)].launch_status, rows[str(left.id)].state) == ("made", "terminated")
    vast.dwell(ending=0)
    terminate_one(lab.session, lab.row(machine), why="a test")
    spent = sum(sum(vast.bill(str(one.id)).values()) for one in (left, kept))
    assert vast.bill(str(left.id))["storage"] > 0
    minute = Decimal("0.4") / 60  # for so long `not found` proves nothing: the ledger's end is that later at most
    assert -Decimal("0.001") < ledgers(lab) - spent < minute + Decimal("0.001")


def test_a_launch_whose_answer_was_lost_is_settled_and_never_sent_twice(vast, lab):
    vast.dwell(listed=30)
    vast.faults.lose_reply("rent")
    with pytest.raises(LaunchUncertain):
        lab.up()
    vast.advance(60)
    machine = lab.up()
    assert [str(one.id) for one in vast.living()] == [lab.row(machine).provider_id]
    assert len(vast.called("rent")) == 1


def test_a_call_that_never_arrived_is_given_up_after_ten_minutes_and_then_sent_anew(vast, lab):
    vast.faults.refuse("rent")
    with pytest.raises(LaunchUncertain):
        lab.up()
    vast.advance(300)
    with pytest.raises(LaunchUncertain):
        lab.up()
    assert vast.living() == []
    vast.advance(400)
    lab.up()
    assert len(vast.living()) == 1
    assert len(vast.called("rent")) == 2


def test_two_computers_with_one_request_each_make_their_own_and_see_both(vast, tmp_path):
    first, second = (Lab(tmp_path, vast, name) for name in ("one", "two"))
    first.up()
    second.up()
    assert len(vast.living()) == 2
    assert all(len(one.session.provider("lab").list().instances) == 2 for one in (first, second))


def test_a_run_of_the_reaper_ends_a_lease_with_few_calls(vast, lab):
    machine = lab.up(lease="1h", renew_until="1h")
    quiet = lab.asked(lambda: reap(lab.session, ReapOptions()))
    assert quiet == {"list": 1, "user": 1}  # the user: what is left of the credit
    vast.advance(HOUR + 60)
    asked = lab.asked(lambda: reap(lab.session, ReapOptions()))
    assert asked == {"list": 1, "user": 1, "get": 3, "change": 1}  # looked at again before and after its stop
    assert lab.row(machine).state == "stopped"
    assert [one.intended for one in vast.living()] == ["stopped"]


def test_a_start_costs_what_its_contract_does_whatever_the_host_asks_of_others_by_then(vast, lab):
    machine = lab.up()
    vast.advance(60)
    stop(lab.session, lab.row(machine), why="a test")
    host = next(host for host in vast.hosts if f"m{host.machine_id}" == lab.row(machine).zone)
    host.dph_base = 3.4
    lab.session.provider("lab").available(Requirements(gpu="rtx4090", zone=lab.row(machine).zone))
    span = timedelta(hours=1)
    started = start(lab.session, lab.row(machine), new_lease(lab.session, lab.row(machine), span, span), no_guard=True)
    assert Decimal(started.price.nanos_per_hour) / 10**9 == Decimal("0.34") == vast.contracts[FIRST].per_hour
    vast.advance(HOUR)
    assert abs(ledgers(lab) - sum(vast.bill(str(FIRST)).values())) < Decimal("0.02")


def test_strangers_are_never_rented_from_unasked(vast, lab):
    lab.up(region=None)
    (one,) = vast.living()
    assert one.ask["hosting_type"] == 1


def test_a_machine_that_a_higher_bid_takes_is_for_jobs_alone(vast, lab):
    asked = parse_request(gpu="rtx4090", spot=True, no_guard=True)
    with pytest.raises(InvalidRequest) as refused:
        prepare(lab.session, replace(asked, interactive=True))
    assert "cloudgpu run --spot" in refused.value.next
    assert prepare(lab.session, asked).plan.offer.configuration.market is Market.SPOT
    assert not vast.called("rent")


def test_no_lease_reaches_beyond_the_day_on_which_the_host_leaves(vast, lab):
    machine = lab.up(lease="8h")
    (contract,) = vast.contracts.values()
    contract.ask["end_date"] = (vast.clock.now() + timedelta(hours=10)).timestamp()
    with pytest.raises(InvalidRequest, match=r"The host of bear leaves vast at .*, before that lease ends"):
        plan_extension(lab.session, lab.row(machine), timedelta(hours=3))
    calls = lab.asked(lambda: extend(lab.session, plan_extension(lab.session, lab.row(machine), timedelta(hours=1))))
    assert calls["get"] + calls["list"] <= 4
    stop(lab.session, lab.row(machine), why="a test")
    now = vast.clock.now().replace(microsecond=0)
    with pytest.raises(InvalidRequest, match="leaves vast"):
        start(lab.session, lab.row(machine), Lease(now + timedelta(hours=11), now + timedelta(hours=11)), no_guard=True)
    assert [one.intended for one in vast.living()] == ["stopped"]
    shorter = Lease(now + timedelta(hours=9), now + timedelta(hours=9))
    started = start(lab.session, lab.row(machine), shorter, no_guard=True)
    assert started.state in ("pending", "running")


def test_a_contract_that_is_listed_without_its_tags_stops_at_its_renew_until(vast, lab, monkeypatch):
    machine, shown = lab.up(lease="1h", renew_until="2h"), Contract.shown
    monkeypatch.setattr(Contract, "shown", lambda contract: {**shown(contract), "extra_env": []})
    vast.advance(3 * HOUR)
    run = reap(lab.session, ReapOptions())
    assert (run.exit_code, [gap.scope for gap in run.unanswered]) == (8, [lab.row(machine).provider_id])
    assert [contract.actual for contract in vast.living()] == ["exited"]


def test_a_stopped_contract_that_cannot_be_read_any_more_is_not_ended_as_long_stopped(vast, lab, monkeypatch):
    """Somebody else may have started it: its end deletes what runs there."""
    machine, shown = lab.up(), Contract.shown
    stop(lab.session, lab.row(machine), why="a test")
    vast.advance(3 * 24 * HOUR)
    monkeypatch.setattr(Contract, "shown", lambda contract: {**shown(contract), "extra_env": []})
    (stopped,) = survey(lab.session, CleanupOptions(stopped_older_than=timedelta(days=1))).orphans
    assert (stopped.name, stopped.do) == ("bear", Cleanup.STAY)
    assert stopped.stays == "it could not be read, so it may have been started"
