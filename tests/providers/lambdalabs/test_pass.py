"""Control on the model of Lambda Cloud: what a pass asks, what it ends at a lease's end, and what that has cost."""

from __future__ import annotations

import shutil
from datetime import timedelta
from decimal import Decimal

import pytest

import cloudgpu
from cloudgpu.cli.machine_text import lease_lines, machine_line
from cloudgpu.cli.render import machine_row
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.control.session import guarding
from cloudgpu.core.model.instances import TAG_ID
from cloudgpu.errors import InvalidRequest, NoCapacity, ProviderUnavailable, QuotaExceeded
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.lambdalabs.provider import make
from cloudgpu.testing import write_plugin

CONFIG = 'provider = "lambda"\npolicy = "throwaway"\naddress_services = []\n'
LAMBDA = "cloudgpu.providers.lambdalabs.provider:make"
WANTED = {"gpu": "a10", "region": "us-east-1", "no_guard": True}


@pytest.fixture
def gpu(lambdalabs, tmp_path, monkeypatch):
    from cloudgpu.providers.registry import kinds

    if "lambda" not in kinds():  # a copy of the source that was not installed anew
        monkeypatch.syspath_prepend(str(write_plugin(tmp_path / "plugin", {"lambda": LAMBDA})))
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(CONFIG)
    environ = {"HOME": str(tmp_path), **lambdalabs.environ}
    with cloudgpu.connect(home=home, environ=environ, clock=lambdalabs.clock.now) as opened:
        yield opened


def asked(server):
    """Return the actions since the last question, and forget them."""
    found = [call.action for call in server.calls]
    server.calls.clear()
    server._numbers = iter(range(1, 10_000))
    return found


def test_a_pass_over_many_machines_is_one_call_to_lambda(lambdalabs, gpu):
    for number in range(3):
        gpu.machines.up(wait=False, name=f"bear-{number}", **WANTED)
    gpu.machines.ls(refresh=True)
    asked(lambdalabs)
    gpu.machines.ls(refresh=True)
    assert asked(lambdalabs) == ["list"]
    gpu.automation.reap()
    assert asked(lambdalabs) == ["list"]


def test_looks_and_runs_of_the_reaper_change_nothing_in_a_fresh_account(lambdalabs, gpu):
    for look in (lambda: gpu.machines.ls(refresh=True), gpu.automation.reap, gpu.automation.doctor):
        look()
        assert not {*asked(lambdalabs)} - {"list", "keys", "types", "global-firewall"}
    gpu.machines.up(wait=False, name="bear", **WANTED)
    assert asked(lambdalabs).count("add-key") == 1
    assert [one["name"] for one in gpu.machines.ls(refresh=True)["machines"]] == ["bear"]


def test_a_machine_is_of_the_account_as_another_computer_has_just_marked_it(lambdalabs, gpu, tmp_path):
    gpu.machines.ls(refresh=True)  # nobody has marked it yet
    known = make(ProviderSettings("lambda", {}, tmp_path / "other", lambdalabs.clock.now, lambda _: None)).register()
    made = gpu.machines.up(wait=False, name="bear", **WANTED)["machine"]
    assert made["identity"]["id"] == known.id
    assert len(lambdalabs.called("add-key")) == 1


def test_at_its_leases_end_a_machine_that_cannot_stop_is_ended_and_proved(lambdalabs, gpu):
    gpu.machines.up(wait=False, name="bear", lease="1h", **WANTED)
    gpu.machines.ls(refresh=True)
    lambdalabs.advance(3 * 3600)
    asked(lambdalabs)
    gpu.automation.reap()
    assert lambdalabs.billable() == []
    assert asked(lambdalabs).count("terminate") == 1
    assert gpu.machines.ls()["machines"] == []


def test_the_bill_is_that_of_the_cloud_by_started_minutes(lambdalabs, gpu):
    gpu.machines.up(wait=False, name="bear", **WANTED)
    gpu.machines.ls(refresh=True)
    lambdalabs.advance(1234)
    gpu.machines.down("bear")
    assert lambdalabs.minutes(lambdalabs.instances()[0].id) == 21
    found = gpu.money.cost()
    total = found["total"]
    assert found["this_month_usd"] == total["usd"]  # the started minute is in both
    low, high = (Decimal(total[key]) for key in ("low_usd", "high_usd"))
    billed = Decimal(str(lambdalabs.bill_cents())) / 100  # 21 minutes at 1.29 an hour
    assert billed == Decimal("0.4515")
    assert low <= billed <= high
    assert high - low <= Decimal("0.0215")  # a minute: nobody told the second in which it began to be billed


def test_sold_out_in_one_region_goes_on_in_the_next_and_everywhere_is_said(lambdalabs, gpu):
    lambdalabs.leave("gpu_1x_a10", "europe-central-1", 0)
    lambdalabs.faults.add("launch", error="instance-operations/launch/insufficient-capacity", region="us-east-1")
    made = gpu.machines.up(wait=False, gpu="a10", no_guard=True)["machine"]
    assert made["region"] in ("us-south-1", "us-west-1")
    assert len(lambdalabs.instances()) == 1
    lambdalabs.sell_out()
    lambdalabs.advance(60)
    with pytest.raises(NoCapacity, match="has none free now"):
        gpu.machines.up(wait=False, name="other", gpu="a10", no_guard=True)


def test_a_quota_is_a_word_of_its_own(lambdalabs, gpu):
    lambdalabs.state.limit = 0
    with pytest.raises(QuotaExceeded) as raised:
        gpu.machines.up(wait=False, **WANTED)
    assert "support" in (raised.value.next or "")


def test_a_machine_that_somebody_ended_elsewhere_is_gone_after_ten_minutes(lambdalabs, gpu):
    made = gpu.machines.up(wait=False, name="bear", **WANTED)["machine"]
    gpu.machines.ls(refresh=True)
    machine = lambdalabs.instances()[0]
    assert {one["key"]: one["value"] for one in machine.asked["tags"]}[TAG_ID] == made["id"]
    lambdalabs._become(machine, "terminated")
    assert [one["name"] for one in gpu.machines.ls(refresh=True)["machines"]] == ["bear"]
    lambdalabs.advance(timedelta(minutes=11).total_seconds())
    assert gpu.machines.ls(refresh=True)["machines"] == []


def test_an_uncertain_launch_is_settled_by_the_listing_and_never_sent_twice(lambdalabs, gpu):
    from cloudgpu.errors import LaunchUncertain

    lambdalabs.late_s = 300
    lambdalabs.faults.lose_reply("launch")
    with pytest.raises(LaunchUncertain):
        gpu.machines.up(wait=False, name="bear", **WANTED)
    gpu.automation.reap()
    lambdalabs.advance(301)
    again = gpu.machines.up(wait=False, name="bear", **WANTED)["machine"]
    assert len(lambdalabs.called("launch")) == 1
    assert again["name"] == "bear"


def test_a_launch_whose_machine_shows_no_tags_while_it_boots_is_never_sent_twice(lambdalabs, gpu):
    from cloudgpu.errors import LaunchUncertain

    lambdalabs.dwell(booting=3600.0)
    lambdalabs.late_s = 60
    lambdalabs.faults.lose_reply("launch")
    with pytest.raises(LaunchUncertain):
        gpu.machines.up(wait=False, name="bear", **WANTED)
    machine = lambdalabs.instances()[0]
    asked, machine.asked = machine.asked, dict(machine.asked, tags=[])
    lambdalabs.advance(1200)
    gpu.automation.reap()
    with pytest.raises(ProviderUnavailable, match="does not show the tags"):
        gpu.machines.up(wait=False, name="bear", **WANTED)
    machine.asked = asked
    assert gpu.machines.up(wait=False, name="bear", **WANTED)["machine"]["name"] == "bear"
    assert len(lambdalabs.called("launch")) == 1


def test_another_computer_keeps_a_machine_whose_tags_are_not_shown_for_a_while(lambdalabs, gpu, tmp_path):
    gpu.machines.up(wait=False, name="bear", **WANTED)
    for sent in (tmp_path / "home").glob("**/sent"):
        shutil.rmtree(sent)  # another computer with this ledger has no such record
    machine = lambdalabs.instances()[0]
    asked, machine.asked = machine.asked, dict(machine.asked, tags=[])
    for seconds in (0, 60, 1200):
        lambdalabs.advance(seconds)
        gpu.automation.reap()
        assert [one["name"] for one in gpu.machines.ls(refresh=True)["machines"]] == ["bear"]
    machine.asked = asked
    (found,) = gpu.machines.ls(refresh=True)["machines"]
    assert (found["name"], found["state"]) == ("bear", "running")
    assert lambdalabs.called("terminate") == []


def test_an_uncertain_launch_that_made_nothing_is_sent_anew_only_once_that_is_proved(lambdalabs, gpu):
    from cloudgpu.errors import LaunchUncertain

    lambdalabs.faults.add("launch", error="global/internal-error")
    for _ in range(3):
        with pytest.raises(LaunchUncertain):
            gpu.machines.up(wait=False, name="bear", **WANTED)
        lambdalabs.advance(120)
    assert len(lambdalabs.called("launch")) == 1
    lambdalabs.advance(600)
    gpu.machines.up(wait=False, name="bear", **WANTED)
    assert len(lambdalabs.instances()) == 1


def test_a_machine_that_costs_more_than_its_plan_said_is_in_the_ledger_at_its_own_price(lambdalabs, gpu):
    gpu.machines.plan(**WANTED)
    lambdalabs.state.cents["gpu_1x_a10"] = 299
    gpu.machines.up(wait=False, name="bear", **WANTED)
    lambdalabs.state.cents["gpu_1x_a10"] = 399
    lambdalabs.advance(600)
    assert gpu.machines.ls(refresh=True)["machines"][0]["price"]["usd_per_hour"] == "2.99"
    lambdalabs.advance(3600)
    gpu.machines.down("bear")
    assert abs(Decimal(gpu.money.cost()["total"]["usd"]) - Decimal(lambdalabs.bill_cents()) / 100) < Decimal("0.1")


@pytest.mark.parametrize(("policy", "column", "row"), [
    ("default", "warns in 8h, ends in 3d", "only warns, at"),
    ("throwaway", "8h left", "until "),
])  # fmt: skip
def test_a_lease_that_ends_nothing_is_said_to_warn_alone(lambdalabs, gpu, policy, column, row):
    gpu.machines.up(wait=False, name="bear", policy=policy, lease="8h", renew_until="3d", **WANTED)
    (value,) = gpu.machines.ls()["machines"]
    now = lambdalabs.clock.now()
    assert value["lease_ends"] is (policy == "throwaway")
    assert machine_row(value, now)[-1] == column
    assert dict(lease_lines(value, now))["lease"].startswith(row)
    assert ("its lease only warns" in machine_line(value)) is (policy == "default")
    lambdalabs.advance(10 * 3600)
    later = machine_row(value, lambdalabs.clock.now())[-1]
    assert later == ("warned, ends in 2d 14h" if policy == "default" else "over 2h")


def test_a_run_that_could_read_none_of_an_accounts_machines_guards_no_launch(lambdalabs, gpu, tmp_path, monkeypatch):
    """Nothing but scheduled runs ends what a machine costs at Lambda."""
    monkeypatch.setattr(guarding, "POWER_SUPPLY", tmp_path / "power_supply")
    scheduled = ReapOptions(cron=True, interval=timedelta(minutes=10))
    guarded = {**WANTED, "no_guard": False}
    gpu.machines.up(wait=False, name="bear", **WANTED)
    reap(gpu._session, scheduled)
    gpu.machines.up(wait=False, name="fox", **guarded)
    bear, fox = lambdalabs.instances()
    for machine in (bear, fox):
        machine.asked = dict(machine.asked, tags=None)
    lambdalabs.faults.add("get", error="x", status=200, body={"data": {}}, times=10)
    gpu._session.pause = lambdalabs.advance
    reap(gpu._session, scheduled)
    with pytest.raises(InvalidRequest, match="do not check this account"):
        gpu.machines.up(wait=False, name="wolf", **guarded)


def test_a_machine_whose_tags_are_no_longer_shown_ends_with_its_lease(lambdalabs, gpu):
    gpu.machines.up(wait=False, name="bear", lease="1h", renew_until="2h", **WANTED)
    gpu.automation.reap()
    (machine,) = lambdalabs.instances()
    machine.asked = dict(machine.asked, tags=None)
    lambdalabs.advance(3 * 3600)
    gpu._session.pause = lambdalabs.advance
    gpu.automation.reap()
    assert lambdalabs.billable() == []


def test_a_machine_that_cannot_be_read_is_named_with_the_orphans_of_one_region(lambdalabs, gpu):
    gpu.machines.up(wait=False, name="bear", **WANTED)
    (machine,) = lambdalabs.instances()
    machine.asked = dict(machine.asked, tags=None)
    assert [gap["scope"] for gap in gpu.automation.orphans(region="us-east-1")["unanswered"]] == [machine.id]
