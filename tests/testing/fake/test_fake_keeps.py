"""The fake cloud keeps disks and images as real ones do, counts GPUs, and denies what it is told to deny."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from cloudgpu.core.model.instances import TAG_ID, State
from cloudgpu.core.model.launch import Network, Setup, Volume
from cloudgpu.core.model.offers import Market, Requirements
from cloudgpu.core.model.resources import Kind
from cloudgpu.errors import AuthFailed, InvalidRequest, ProviderUnavailable, QuotaExceeded
from cloudgpu.providers.abilities import HasFirewall
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.testing import FakeProvider, ManualClock, ReachableFakeProvider, make, make_attempt, new_host_key, pick

HOST_KEY = new_host_key()
ONE_TIME, FOR_EVER = Setup(), Setup(persistent=True)


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
    return build(image_s=60, **shared)


def launch(cloud, *, market=Market.SPOT, **changes):
    offered = pick(cloud.available(Requirements(gpu="v100", market=market)).items, market)
    given = {"now": cloud.clock(), "host_key": HOST_KEY, "client_public_keys": [HOST_KEY[0]]}
    made = make_attempt(offered, **{**given, **changes})
    return cloud.launch(made, deadline=made.expires)


def things(cloud):
    return [(one.kind, one.ready, one.attached_to) for one in cloud.resources().items]


def test_the_disk_of_an_interrupted_spot_machine_stays(cloud):
    made = launch(cloud)
    cloud.take(made.id)
    (disk,) = cloud.resources().items
    assert (disk.kind, disk.attached_to, disk.tags[TAG_ID]) == (Kind.DISK, None, made.tags[TAG_ID])


@pytest.mark.parametrize("setup", [ONE_TIME, FOR_EVER])
def test_the_disk_of_what_can_be_stopped_goes_with_it(cloud, clock, setup):
    launch(cloud, market=Market.ON_DEMAND, setup=setup, renew=timedelta(minutes=1))
    clock.advance(60)
    assert things(cloud) == []


def test_a_persistent_spot_machine_can_be_stopped(cloud):
    made = launch(cloud, setup=FOR_EVER)
    cloud.stop(made.id)
    assert cloud.get(made.id).state is State.STOPPED
    (offered, *_) = cloud.available(Requirements(gpu="v100", market=Market.SPOT, persistent=True)).items
    assert offered.stoppable


def test_a_disk_becomes_a_snapshot_first_and_an_image_when_that_is_ready(cloud, clock):
    made = launch(cloud)
    cloud.terminate_keeping_disk(made.id)
    (disk,) = cloud.resources().items
    assert cloud.save_image(disk.id, "kept", disk.tags).ready is False
    clock.advance(59)
    assert cloud.save_image(disk.id, "kept", disk.tags).kind is Kind.SNAPSHOT
    clock.advance(1)
    assert (Kind.SNAPSHOT, True, None) in things(cloud), "it is no image until somebody asks for it"
    assert cloud.save_image(disk.id, "kept", disk.tags).kind is Kind.IMAGE
    assert sorted(things(cloud)) == [(Kind.DISK, True, None), (Kind.IMAGE, True, None)]


def test_an_image_of_a_running_machine_restarts_it_once_and_takes_its_time(cloud, clock):
    made = launch(cloud)
    for _ in range(3):
        assert not cloud.save_image(made.id, "kept", made.tags).ready
    clock.advance(60)
    assert cloud.save_image(made.id, "kept", made.tags).ready
    with cloud._store.open() as inside:
        assert inside.machines[made.id].restarts == 1


def test_an_image_that_is_not_ready_cannot_be_launched_from(cloud):
    made = launch(cloud)
    image = cloud.save_image(made.id, "kept", made.tags)
    offered = pick(cloud.available(Requirements(region=made.region)).items)
    wanted = make_attempt(offered, now=cloud.clock(), host_key=HOST_KEY, setup=Setup(image="kept"))
    with pytest.raises(InvalidRequest, match="not ready"):
        cloud.resolve(wanted.request, offered)
    assert cloud.placement_constraint(Setup(image=image.id), Requirements()).region == made.region


def test_an_image_lies_in_its_region(cloud):
    made = launch(cloud)
    cloud.save_image(made.id, "kept", made.tags)
    with pytest.raises(InvalidRequest) as refused:
        cloud.placement_constraint(Setup(image="kept"), Requirements(region="south"))
    assert (made.region, refused.value.field) == ("north", "--image")


def test_an_image_and_a_volume_of_two_regions_cannot_be_used_together(cloud):
    made = launch(cloud)
    cloud.save_image(made.id, "kept", made.tags)
    south = pick(cloud.available(Requirements(region="south")).items)
    wanted = make_attempt(south, now=cloud.clock(), host_key=HOST_KEY, key="far")
    there = cloud.launch(wanted, deadline=wanted.expires)
    cloud.attach(there.id, Volume("data", 5), there.tags)
    with pytest.raises(InvalidRequest, match="image kept is in north, and the volume data is in south") as refused:
        cloud.placement_constraint(Setup(image="kept", volume=Volume("data")), Requirements())
    assert refused.value.next == "Leave one of them out, or make the image in the volume's region."


def test_an_image_in_the_making_is_not_suggested_for_itself(cloud):
    made = launch(cloud)
    cloud.take(made.id)
    (disk,) = cloud.resources().items
    assert cloud.save_image(disk.id, "kept", made.tags).kind is Kind.SNAPSHOT
    with pytest.raises(InvalidRequest) as refused:
        cloud.placement_constraint(Setup(image="kept"), Requirements())
    assert refused.value.message == "there is no image kept"


def test_a_hidden_region_keeps_its_leftovers_to_itself_and_is_named(cloud):
    launch(cloud)
    cloud.hide("north")
    found = cloud.resources()
    assert (found.items, [gap.scope for gap in found.unanswered]) == ((), ["north"])
    assert cloud.resources("south").unanswered == ()
    cloud.show("north")
    assert len(cloud.resources().items) == 1


def test_a_quota_counts_gpus_and_refuses_what_is_too_much(cloud):
    cloud.set_quota("north", Market.SPOT, 1)
    launch(cloud)
    used = {quota.market: (quota.limit, quota.used) for quota in cloud.quotas("north")}
    assert used == {Market.SPOT: (1, 1), Market.ON_DEMAND: (10_000, 0)}
    with pytest.raises(QuotaExceeded) as refused:
        launch(cloud, key="second")
    assert refused.value.value == "fake-gpus-spot"
    assert "cloudgpu quota" in refused.value.next
    assert launch(cloud, market=Market.ON_DEMAND, key="second")


def test_no_less_than_there_is_can_be_asked_for(cloud):
    cloud.set_quota("north", Market.SPOT, 8)
    for wrong in (8, 7, float("nan")):
        with pytest.raises(InvalidRequest):
            cloud.request_quota("north", "fake-gpus-spot", wrong)
    assert cloud.request_quota("north", "fake-gpus-spot", 9) == "request-1"


@pytest.mark.parametrize("ask", [lambda cloud: cloud.quotas("nowhere"), lambda cloud: cloud.permissions("nowhere")])
def test_an_unknown_region_is_refused(cloud, ask):
    with pytest.raises(InvalidRequest) as refused:
        ask(cloud)
    assert refused.value.field == "--region"


def test_what_is_denied_fails_and_is_named_by_the_permissions(cloud):
    made = launch(cloud)
    cloud.deny("terminate")
    with pytest.raises(AuthFailed) as refused:
        cloud.terminate(made.id)
    assert refused.value.value == "fake:terminate"
    assert [one.action for one in cloud.permissions() if not one.allowed] == ["fake:terminate"]
    cloud.permit("terminate")
    cloud.terminate(made.id)


def test_a_lost_reply_to_a_removal_has_removed(cloud):
    cloud.terminate_keeping_disk(launch(cloud).id)
    (disk,) = cloud.resources().items
    cloud.lose_reply("remove")
    with pytest.raises(ProviderUnavailable):
        cloud.remove(disk)
    assert things(cloud) == []


def test_a_volume_in_another_zone_is_not_attached(cloud):
    tags = {"cloudgpu-ledger": "led-test"}
    one, two = (launch(cloud, key=key) for key in ("one", "two"))
    assert cloud.attach(one.id, Volume("data", 5), tags).zone == one.zone
    there = pick(cloud.available(Requirements(zone="south-b")).items)
    wanted = make_attempt(there, key="three", now=cloud.clock(), host_key=HOST_KEY)
    with pytest.raises(InvalidRequest, match="is in north-a"):
        cloud.attach(cloud.launch(wanted, deadline=wanted.expires).id, Volume("data"), tags)
    with pytest.raises(InvalidRequest, match="is used by"):
        cloud.attach(two.id, Volume("data"), tags)


def test_a_name_means_a_volume_of_the_own_ledger(cloud):
    made = launch(cloud)
    cloud.attach(made.id, Volume("data", 5), {"cloudgpu-ledger": "led-other"})
    assert cloud.placement_constraint(Setup(volume=Volume("data")), Requirements()).zone == made.zone, (
        "no ledger means anybody's"
    )
    cloud.ledger = "led-test"
    with pytest.raises(InvalidRequest, match="no volume data"):
        cloud.placement_constraint(Setup(volume=Volume("data")), Requirements())


def test_only_a_fake_that_is_told_so_says_who_may_connect(build):
    assert not isinstance(build(), HasFirewall)
    assert isinstance(build(reachable=True), ReachableFakeProvider)


def test_somebody_elses_group_is_left_alone(build):
    cloud = build(reachable=True)
    made = launch(cloud, setup=Setup(network=Network(security_group="sg-1")))
    assert cloud.allowed(made.id) == {}
    with pytest.raises(InvalidRequest) as refused:
        cloud.allow(made.id, "caller", "203.0.113.7/32")
    assert refused.value.field == "--security-group"


def test_another_value_sees_what_was_kept(build, tmp_path):
    first, second = (build(state_file=str(tmp_path / "cloud.json"), reachable=True) for _ in range(2))
    made = launch(first, setup=Setup(network=Network(ssh_from=("203.0.113.7/32",))))
    first.set_quota("north", Market.SPOT, 3)
    first.deny("stop")
    assert second.resources() == first.resources()
    assert second.allowed(made.id) == {"caller": "203.0.113.7/32"}
    assert {quota.limit for quota in second.quotas("north")} == {3, 10_000}
    assert json.loads((tmp_path / "cloud.json").read_text())["denied"] == ["stop"]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"image_s": -1}, "accounts.lab.image_s"),
        ({"endpoint": "nowhere"}, "accounts.lab.endpoint"),
        ({"endpoint": "host:99999"}, "accounts.lab.endpoint"),
        ({"reachable": "yes"}, "accounts.lab.reachable"),
    ],
)
def test_a_setting_that_cannot_be_is_named(build, options, field):
    with pytest.raises(InvalidRequest) as refused:
        build(**options)
    assert refused.value.field == field
