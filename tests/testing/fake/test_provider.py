"""The fake cloud fails as it is told to, and keeps time."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from decimal import Decimal

import pytest

from cloudgpu.core.model.instances import Address, State
from cloudgpu.core.model.offers import Market, Requirements
from cloudgpu.core.values.money import Money
from cloudgpu.errors import (
    InstanceNotFound,
    InvalidRequest,
    LaunchUncertain,
    NoCapacity,
    ProviderUnavailable,
    QuotaExceeded,
    RateLimited,
)
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.testing import FakeProvider, ManualClock, make, make_attempt, new_host_key, pick

HOST_KEY = new_host_key()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def build(tmp_path, clock):
    def build(**options) -> FakeProvider:
        return make(ProviderSettings("lab", options, tmp_path, clock))

    return build


@pytest.fixture(params=["memory", "file"])
def cloud(request, build, tmp_path):
    shared = {"state_file": str(tmp_path / "cloud.json")} if request.param == "file" else {}
    return build(boot_s=30, stop_s=10, notice_s=120, **shared)


def attempt(cloud, *, gpu="v100", market=Market.ON_DEMAND, **changes):
    offered = pick(cloud.available(Requirements(gpu=gpu, market=market)).items, market)
    given = {"now": cloud.clock(), "host_key": HOST_KEY, "client_public_keys": [HOST_KEY[0]]}
    return make_attempt(offered, **{**given, **changes})


def launch(cloud, **changes):
    made = attempt(cloud, **changes)
    return cloud.launch(made, deadline=made.made_at + timedelta(minutes=2))


def test_a_machine_boots_and_stops_at_its_pace(cloud, clock):
    made = launch(cloud)
    assert (made.state, made.billed, made.since) == (State.PENDING, False, clock())
    clock.advance(29.9)
    assert cloud.get(made.id).state is State.PENDING
    clock.advance(0.1)
    assert (cloud.get(made.id).state, cloud.get(made.id).since) == (State.RUNNING, clock())
    cloud.stop(made.id)
    assert (cloud.get(made.id).state, cloud.get(made.id).billed) == (State.STOPPING, False)
    clock.advance(10)
    assert (cloud.get(made.id).state, cloud.get(made.id).since) == (State.STOPPED, clock())


def test_what_has_ended_is_remembered_for_a_while(cloud, clock):
    made = launch(cloud)
    cloud.terminate(made.id)
    clock.advance(10)
    assert [item.state for item in cloud.list().instances] == [State.TERMINATED]
    clock.advance(3600)
    assert cloud.list().instances == ()
    with pytest.raises(InstanceNotFound):
        cloud.get(made.id)


def test_an_ordered_error_comes_once_and_nothing_was_done(cloud):
    wanted = attempt(cloud)
    cloud.fail_next("launch", QuotaExceeded("no more", field="quota", value="8", next="ask for more"), times=2)
    for _ in range(2):
        with pytest.raises(QuotaExceeded) as raised:
            cloud.launch(wanted, deadline=wanted.expires)
        assert raised.value.as_dict()["next"] == "ask for more"
    assert cloud.list().instances == ()
    assert cloud.launch(wanted, deadline=wanted.expires)


def test_an_ordered_rate_limit_says_how_long(cloud):
    cloud.fail_next("list", RateLimited("slower", retry_after=7.5))
    with pytest.raises(RateLimited) as raised:
        cloud.list()
    assert raised.value.retry_after == 7.5


def test_an_error_waits_for_its_own_method(cloud):
    cloud.fail_next("get", NoCapacity("not now"))
    made = launch(cloud)
    with pytest.raises(NoCapacity):
        cloud.get(made.id)


def test_a_callable_may_act_and_let_the_call_go_on(cloud, clock):
    made = launch(cloud)
    cloud.fail_next("get", lambda: clock.advance(30))
    assert cloud.get(made.id).state is State.RUNNING
    cloud.fail_next("get", lambda: ProviderUnavailable("gone quiet"))
    with pytest.raises(ProviderUnavailable, match="gone quiet"):
        cloud.get(made.id)


def test_a_lost_reply_hides_a_machine_that_was_made(cloud):
    wanted = attempt(cloud)
    cloud.lose_reply("launch")
    with pytest.raises(LaunchUncertain):
        cloud.launch(wanted, deadline=wanted.expires)
    (made,) = cloud.list().instances
    assert cloud.launch(wanted, deadline=wanted.expires).id == made.id


def test_a_lost_reply_to_a_stop_has_stopped(cloud):
    made = launch(cloud)
    cloud.lose_reply("stop")
    with pytest.raises(ProviderUnavailable):
        cloud.stop(made.id)
    assert cloud.get(made.id).state is State.STOPPING


@pytest.mark.parametrize(("scope", "left"), [("north", 0), ("south", 1), ("lab", 0)])
def test_a_hidden_scope_is_named_in_the_listing(cloud, scope, left):
    made = launch(cloud)
    assert made.region == "north"
    cloud.hide(scope)
    assert [len(cloud.list().instances), [item.scope for item in cloud.list().unanswered]] == [left, [scope]]
    cloud.show(scope)
    assert [len(cloud.list().instances), cloud.list().unanswered] == [1, ()]


def test_an_exhausted_zone_is_not_offered_and_not_sold(cloud):
    wanted = attempt(cloud)
    zone = wanted.offer.configuration.zone
    cloud.exhaust(zone)
    assert zone not in {item.zone for item in cloud.available(Requirements()).items}
    with pytest.raises(NoCapacity) as raised:
        cloud.launch(wanted, deadline=wanted.expires)
    assert raised.value.value == zone
    cloud.refill(zone)
    assert cloud.launch(wanted, deadline=wanted.expires).zone == zone


def test_a_machine_in_an_exhausted_zone_cannot_start_again(cloud, clock):
    made = launch(cloud)
    cloud.stop(made.id)
    with pytest.raises(InvalidRequest, match="still stopping"):
        cloud.start(made.id)
    clock.advance(10)
    cloud.exhaust(made.zone)
    with pytest.raises(NoCapacity):
        cloud.start(made.id)


def test_a_fresh_machine_is_missing_from_listings_but_not_from_a_look(build, clock):
    cloud = build(lag_s=5)
    made = launch(cloud)
    assert cloud.list().instances == ()
    assert cloud.get(made.id).id == made.id
    assert cloud.token_rule.listing_proves_after == timedelta(seconds=5)
    clock.advance(5)
    assert [item.id for item in cloud.list().instances] == [made.id]


def test_a_token_is_forgotten_after_its_lifetime(build, clock):
    cloud = build(token_s=60)
    wanted = attempt(cloud)
    first = cloud.launch(wanted, deadline=wanted.expires)
    clock.advance(59)
    assert cloud.launch(wanted, deadline=wanted.expires).id == first.id
    clock.advance(1)
    assert cloud.launch(wanted, deadline=wanted.expires).id != first.id


def test_a_token_cannot_be_used_for_another_call(cloud):
    launch(cloud, token="one")
    with pytest.raises(InvalidRequest) as raised:
        launch(cloud, token="one", tags={"cloudgpu-name": "another"})
    assert raised.value.field == "token"


def test_a_machine_dies_and_can_be_started_again(cloud, clock):
    made = launch(cloud)
    clock.advance(30)
    cloud.die(made.id)
    dead = cloud.get(made.id)
    assert (dead.state, dead.reason, dead.since, dead.billed) == (State.STOPPED, "died", clock(), False)
    cloud.start(made.id)
    clock.advance(30)
    assert (cloud.get(made.id).state, cloud.get(made.id).reason) == (State.RUNNING, None)


def test_a_spot_machine_gets_its_notice_and_is_taken(cloud, clock):
    made = launch(cloud, market=Market.SPOT)
    clock.advance(60)
    taken = cloud.interrupt(made.id)
    assert taken == clock() + timedelta(seconds=120)
    clock.advance(60)
    assert cloud.interrupt(made.id) == taken
    assert cloud.get(made.id).state is State.RUNNING
    clock.advance(60)
    assert (cloud.get(made.id).state, cloud.get(made.id).reason) == (State.TERMINATED, "interrupted")
    assert cloud.get(made.id).since == taken


def test_a_machine_can_be_taken_without_notice(cloud):
    made = launch(cloud, market=Market.SPOT)
    cloud.take(made.id)
    assert (cloud.get(made.id).state, cloud.get(made.id).reason) == (State.TERMINATED, "interrupted")


def test_a_spot_machine_cannot_be_stopped(cloud):
    made = launch(cloud, market=Market.SPOT)
    with pytest.raises(InvalidRequest) as raised:
        cloud.stop(made.id)
    assert raised.value.next == "terminate it"
    assert not pick(cloud.available(Requirements(market=Market.SPOT)).items, Market.SPOT).stoppable


def test_a_machine_on_demand_cannot_be_interrupted(cloud):
    with pytest.raises(InvalidRequest):
        cloud.interrupt(launch(cloud).id)


def test_a_longer_lease_does_not_wake_the_dead(cloud, clock):
    made = launch(cloud, renew=timedelta(minutes=1))
    clock.advance(60)
    assert (cloud.get(made.id).state, cloud.get(made.id).reason) == (State.TERMINATED, "renew-until")
    for ask in (cloud.stop, cloud.start, lambda machine: cloud.tag(machine, {"cloudgpu-renew-until": "9999999999"})):
        with pytest.raises(InstanceNotFound):
            ask(made.id)


@pytest.mark.parametrize(
    "tags", [{"cloudgpu-name": "Upper"}, {"cloudgpu-name": "x" * 64}, {"cloudgpu-renew-until": "soon"}]
)
def test_a_tag_that_no_cloud_could_hold_is_refused(cloud, tags):
    with pytest.raises(InvalidRequest) as refused:
        launch(cloud, tags=tags)
    made = launch(cloud)
    with pytest.raises(InvalidRequest):
        cloud.tag(made.id, tags)
    assert [refused.value.field] == list(tags)


def test_a_token_that_is_too_long_is_refused(cloud):
    with pytest.raises(InvalidRequest) as refused:
        launch(cloud, token="x" * 65)
    assert refused.value.field == "token"


def test_every_call_is_counted_whether_it_worked_or_not(cloud):
    cloud.fail_next("list", ProviderUnavailable("no"))
    with pytest.raises(ProviderUnavailable):
        cloud.list()
    cloud.list()
    made = launch(cloud)
    cloud.get(made.id)
    assert dict(cloud.calls) == {"list": 2, "available": 1, "launch": 1, "get": 1}


def test_it_sells_two_regions_of_two_zones_in_both_markets(cloud):
    found = (
        cloud.available(Requirements(gpu="v100")).items
        + cloud.available(Requirements(gpu="v100", market=Market.SPOT)).items
    )
    assert {(item.region, item.zone) for item in found} == {
        ("north", "north-a"), ("north", "north-b"), ("south", "south-a"), ("south", "south-b"),
    }  # fmt: skip
    assert {item.market for item in found} == set(Market)
    assert {item.instance_type for item in cloud.available(Requirements(gpu="v100", gpu_count=4)).items} == {
        "fake.v100.4"
    }
    assert {item.instance_type for item in cloud.available(Requirements(gpu="a100", region="south")).items} == {
        "fake.a100.1",
    }


def test_prices_can_be_set(build):
    cloud = build(prices={"fake.v100.1": "1.5", "fake.cpu": 0})
    dear, spot, free = (
        pick(cloud.available(Requirements(instance_type=kind, market=market)).items, market)
        for kind, market in (
            ("fake.v100.1", Market.ON_DEMAND),
            ("fake.v100.1", Market.SPOT),
            ("fake.cpu", Market.ON_DEMAND),
        )
    )
    assert [price and price.per_hour for price in cloud.prices([dear, spot, free])] == [
        Money.usd("1.5"), Money.usd(Decimal("0.45")), Money(0),
    ]  # fmt: skip


def test_a_running_machine_has_the_address_it_was_given(build, clock):
    cloud = build(host="127.0.0.1", port=2222)
    made = launch(cloud)
    assert made.address == Address("127.0.0.1", 2222, "")
    cloud.address = Address("localhost", 22, "bob")
    assert cloud.get(made.id).address == cloud.address
    cloud.stop(made.id)
    assert cloud.get(made.id).address is None


def test_a_machine_reports_when_it_was_last_active(cloud, clock):
    made = launch(cloud)
    cloud.report_activity(made.id, clock())
    assert cloud.get(made.id).last_active == clock()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"boot": 3}, "accounts.lab.boot"),
        ({"boot_s": -1}, "accounts.lab.boot_s"),
        ({"boot_s": "soon"}, "accounts.lab.boot_s"),
        ({"lag_s": float("nan")}, "accounts.lab.lag_s"),
        ({"stop_s": True}, "accounts.lab.stop_s"),
        ({"port": 70000}, "accounts.lab.port"),
        ({"port": "22"}, "accounts.lab.port"),
        ({"prices": {"fake.cpu": "free"}}, "accounts.lab.prices"),
        ({"prices": {"fake.cpu": -1}}, "accounts.lab.prices"),
        ({"prices": "cheap"}, "accounts.lab.prices"),
        ({"state_file": 3}, "accounts.lab.state_file"),
    ],
)
def test_a_setting_that_cannot_be_is_named(build, options, field):
    with pytest.raises(InvalidRequest) as refused:
        build(**options)
    assert refused.value.field == field
    assert refused.value.next


def test_two_values_share_a_state_file(build, tmp_path, clock):
    first, second = (build(state_file=str(tmp_path / "cloud.json"), boot_s=5) for _ in range(2))
    made = launch(first)
    first.fail_next("get", NoCapacity("from the other side"))
    with pytest.raises(NoCapacity, match="from the other side"):
        second.get(made.id)
    clock.advance(5)
    assert second.get(made.id) == first.get(made.id)
    assert second.get(made.id).state is State.RUNNING
    assert second.calls == first.calls
    assert (tmp_path / "cloud.json").stat().st_mode & 0o777 == 0o600


def test_a_state_file_holds_no_secret(build, tmp_path):
    launch(build(state_file=str(tmp_path / "cloud.json")))
    assert "PRIVATE" not in (tmp_path / "cloud.json").read_text()


def test_a_damaged_state_file_is_named_and_left_alone(build, tmp_path):
    damaged = tmp_path / "cloud.json"
    damaged.write_text('{"machines": [')
    cloud = build(state_file=str(damaged))
    with pytest.raises(ProviderUnavailable) as raised:
        cloud.list()
    assert str(damaged) in raised.value.message
    assert damaged.read_text() == '{"machines": ['


COUNT = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.testing import make
cloud = make(ProviderSettings("lab", {"state_file": sys.argv[1]}, Path(sys.argv[1]).parent, lambda: datetime.now(UTC)))
for _ in range(40):
    cloud.list()
"""


@pytest.mark.soak
def test_processes_that_share_a_state_file_lose_nothing(build, tmp_path):
    state = tmp_path / "cloud.json"
    running = [subprocess.Popen([sys.executable, "-c", COUNT, str(state)]) for _ in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert json.loads(state.read_text())["calls"] == {"list": 120}


def test_the_fake_needs_no_pytest():
    code = "import sys; import cloudgpu.testing.fake.provider; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
