"""What is asked of prices, since when, and what is written: on the fake cloud, and by the dated list of a real one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from cloudgpu.catalog import listed_price
from cloudgpu.control.inputs.launch_request import UpRequest, parse_request
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.lifecycle.lifecycle import stop, terminate_one
from cloudgpu.control.lifecycle.start import new_lease, start
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.pricing.price_history import (
    machines_to_price,
    on_demand_of,
    prices_in_effect,
    query_prices,
    start_price_events,
)
from cloudgpu.core.events.observations import AccountPrices, price_lines
from cloudgpu.core.model.facts import HourlyPrice
from cloudgpu.core.model.offers import Basis, Market, Price, Requirements, price_from_json, price_to_json
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import iso
from tests.control.conftest import Lab

AGREED = '[[discounts]]\nprovider = "aws"\naccount = "lab"\ntype = "p3.*"\npercent = 20\n'


def pinned(lab, machine):
    """The prices that were written of a machine, in dollars an hour, oldest first."""
    found = [one.body["price"] for one in lab.session.ledger.events(machine.id) if one.kind == "price_observed"]
    return [Decimal(one["nanos_per_hour"]) / 10**9 for one in found]


def test_the_history_is_asked_for_since_the_machine_of_which_least_is_known(lab):
    one, two = (lab.up(name=name, key=name, spot=True).machine for name in ("fox", "owl"))
    for hours, usd in ((1, "1.5"), (2, "0.9")):
        lab.cloud.set_spot_price(two.instance_type, two.zone, usd, lab.clock() + timedelta(hours=hours))
    lab.later(hours=3)
    known = one._replace(price=one.price._replace(as_of=iso(lab.clock())))
    history = query_prices(lab.session, "lab", None, [known, two]).history
    assert [price.per_hour.text(1) for price in history[two.id]][-2:] == ["$1.5", "$0.9"]


def test_what_a_spot_machine_cost_to_its_end_is_written_when_it_ends(lab):
    machine = lab.up(name="fox", spot=True).machine
    lab.later(minutes=1)
    sync_all(lab.session)
    lab.cloud.set_spot_price(machine.instance_type, machine.zone, "1.5", lab.clock() + timedelta(hours=1))
    lab.later(hours=2)
    terminate_one(lab.session, lab.session.ledger.machine(machine.id), why="a test")
    assert pinned(lab, machine)[-1] == Decimal("1.5")


@pytest.mark.parametrize(("days", "asked"), [(30, True), (91, False)])
def test_prices_are_asked_for_that_a_cloud_remembers_of_a_machine_that_ended_unseen(lab, days, asked):
    machine = lab.up(name="fox", spot=True).machine
    lab.later(minutes=1)
    sync_all(lab.session)
    lab.cloud.take(machine.provider_id)
    lab.later(minutes=1)
    ended = iso(lab.clock())
    lab.later(days=days)
    gone = lab.session.ledger.machine(machine.id)._replace(state="terminated", billed=False, terminated_at=ended)
    assert bool(machines_to_price(lab.session, [gone]).machines) is asked


def test_the_list_of_a_cloud_is_read_at_what_was_agreed(tmp_path, monkeypatch):
    lab = Lab(tmp_path, monkeypatch, AGREED)
    place = {"provider": "aws", "region": "us-east-1", "instance_type": "p3.2xlarge"}
    machine = lab.up(name="fox").machine._replace(**place)
    found = query_prices(lab.session, "lab", None, [machine]).now[machine.id]
    listed = listed_price("aws", "p3.2xlarge", "us-east-1", Market.ON_DEMAND)
    assert found.per_hour.nanos == listed.per_hour.nanos * 8 // 10
    assert "20% off" in found.source


def test_what_was_agreed_up_to_a_day_gives_way_to_the_list_though_that_is_older(tmp_path, monkeypatch):
    rate = '[[discounts]]\nprovider = "aws"\naccount = "lab"\nrate = "1.00"\nuntil = "2026-11-20"\n'
    lab = Lab(tmp_path, monkeypatch, rate)
    place = {"provider": "aws", "region": "us-east-1", "instance_type": "p3.2xlarge"}
    machine = lab.up(name="fox").machine._replace(**place)
    agreed = query_prices(lab.session, "lab", None, [machine]).now[machine.id]
    running = machine._replace(price=HourlyPrice.of(price_to_json(agreed)))
    assert price_lines(query_prices(lab.session, "lab", None, [running]), [running], lab.clock()) == []
    lab.later(days=1)
    (line,) = price_lines(query_prices(lab.session, "lab", None, [running]), [running], lab.clock())
    listed = listed_price("aws", "p3.2xlarge", "us-east-1", Market.ON_DEMAND)
    assert listed.as_of < agreed.as_of
    assert line.body["price"]["nanos_per_hour"] == listed.per_hour.nanos
    listed_then = running._replace(price=HourlyPrice.of(price_to_json(replace(listed, as_of=lab.clock()))))
    cheaper = AccountPrices(now={machine.id: replace(listed, per_hour=Money(1))})
    assert price_lines(cheaper, [listed_then], lab.clock()) == []  # an older list alone replaces no price


def test_what_another_account_pays_on_demand_is_not_this_accounts_price(lab):
    spot = prepare(lab.session, parse_request(gpu="v100", spot=True)).plan.offer
    own = on_demand_of(lab.session, spot)
    configuration = replace(spot.configuration, account="other", market=Market.ON_DEMAND)
    theirs = replace(spot, configuration=configuration, price=replace(own, per_hour=Money(1)))
    assert on_demand_of(lab.session, spot, [theirs]).per_hour == own.per_hour
    mine = replace(theirs, configuration=replace(configuration, account="lab"))
    assert on_demand_of(lab.session, spot, [theirs, mine]).per_hour == Money(1)


def test_a_start_at_another_price_is_written_and_one_at_the_same_is_not(lab):
    machine = lab.up(name="fox").machine
    before = price_from_json(machine.price.record())
    assert start_price_events(lab.session, machine, before, lab.clock()) == []
    cheaper = replace(before, per_hour=Money(before.per_hour.nanos // 2))
    (line,) = start_price_events(lab.session, machine, cheaper, lab.clock())
    assert line.body["price"]["nanos_per_hour"] * 2 == machine.price.nanos_per_hour


def test_what_settings_say_of_a_price_counts_from_the_home_of_the_launch_alone(tmp_path, monkeypatch):
    lab = Lab(tmp_path, monkeypatch, '[[discounts]]\nprovider = "fake"\naccount = "lab"\npercent = 20\n')
    bob = colleague(lab)
    machine = lab.up(name="fox").machine
    theirs = launch(bob, prepare(bob, UpRequest(Requirements(gpu="v100"), name="owl")), wait=False).machine
    for one in (bob, lab.session, bob):
        lab.later(hours=1)
        sync_all(one)
    assert pinned(lab, machine) == pinned(lab, theirs) == []
    prices = {row.name: row.price.basis for row in lab.rows()}
    assert (prices["fox"], prices["owl"] != "setting") == ("setting", True)


def test_after_a_home_has_moved_its_settings_price_the_next_run_and_not_this_one(tmp_path, monkeypatch):
    agreed = '[[discounts]]\nprovider = "fake"\naccount = "lab"\npercent = {}\n'
    lab = Lab(tmp_path, monkeypatch, agreed.format(20))
    nanos = lab.up(name="fox").machine.price.nanos_per_hour
    moved = lab.home.rename(lab.home.parent / "moved")
    text = (moved / "config.toml").read_text().replace("percent = 20", "percent = 60")
    (moved / "config.toml").write_text(text)
    session = open_session({"CLOUDGPU_HOME": str(moved), "USER": "ada"}, clock=lab.clock, tell=lambda _: None)
    lab.later(hours=1)
    sync_all(session)
    (fox,) = session.ledger.machines()
    assert fox.price.nanos_per_hour == nanos
    stop(session, fox, why="asked by the user")
    lab.later(hours=1)
    assert start(session, fox, new_lease(session, fox, None)).price.nanos_per_hour == nanos // 2
    session.ledger.close()


def test_a_price_that_no_settings_make_counts_from_every_home(lab):
    machine = lab.up(name="fox").machine
    bob = colleague(lab)
    now = Price(Money.usd("9.5"), "a list", lab.clock(), Basis.LISTED)
    quoted = machine._replace(price=machine.price._replace(basis="quoted"))
    assert prices_in_effect(bob, [quoted], {machine.id: now}) == {machine.id: now}


@pytest.mark.parametrize(("last", "counts"), [("assumed", True), ("measured", False), ("setting", False)])
def test_a_meter_of_another_home_with_its_own_tariff_replaces_only_what_was_assumed(lab, last, counts):
    machine = lab.up(name="fox").machine
    row = machine._replace(price=machine.price._replace(basis=last))
    now = Price(Money.usd("0.5"), "a meter", lab.clock(), Basis.MEASURED)
    assert bool(prices_in_effect(colleague(lab), [row], {row.id: now})) is counts
    assert prices_in_effect(lab.session, [row], {row.id: now})


def colleague(lab):
    """Return the session of another home on the same ledger and cloud, whose settings agree on nothing."""
    home = lab.home.parent / "bob"
    home.mkdir()
    text = (lab.home / "config.toml").read_text().partition("[[")[0]
    (home / "config.toml").write_text(text)
    url = f"sqlite://{lab.session.home.ledger}/ledger.db"
    environ = {"CLOUDGPU_HOME": str(home), "USER": "bob", "CLOUDGPU_LEDGER": url}
    return open_session(environ, clock=lab.clock, tell=lambda _: None)
