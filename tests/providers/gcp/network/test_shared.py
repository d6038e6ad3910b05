"""The nodes of a cluster on our model of Google Cloud: they reach each other, and what lets them goes with the last."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloudgpu.core.model.cluster import node_of_tags
from cloudgpu.core.model.launch import Network, Setup
from cloudgpu.errors import InvalidRequest, NoCapacity, QuotaExceeded
from cloudgpu.providers.gcp import ids
from cloudgpu.testing import as_nodes
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.clouds.gcp.plain import Plain
from tests.providers.gcp.accounts import account
from tests.providers.gcp.attempts import CALLER, USUAL, attempt_at, launched, offered, saved, soon

__all__ = ["gcp", "gcp_process"]
INSERT, RULE = "compute.instances.insert", "compute.firewalls.insert"
SLURMD = 6818
REGION = "us-central1"


@pytest.fixture
def cloud(gcp, tmp_path):
    return account(gcp, tmp_path)


def cluster(cloud, count=2, *, setup=USUAL, **more):
    """The attempts of a cluster, as they are saved."""
    return [saved(one) for one in as_nodes(attempt_at(cloud, setup=setup, **more), count, engine="slurm")]


def launch(cloud, attempts):
    return [cloud.launch(one, deadline=soon(cloud)) for one in attempts]


def inside(gcp, machine):
    """A machine's address in its network."""
    return gcp.instance(machine.id)["networkInterfaces"][0]["networkIP"]


def id_of(attempts):
    return node_of_tags(attempts[0].tags).id


def rules(cloud):
    """What `orphans` tells of rules of clusters: the name, the machine that uses each."""
    return {one.name: one.attached_to for one in cloud.orphans(REGION).items if one.name.startswith("cloudgpu-in-")}


def test_members_reach_each_other_on_every_port_and_nobody_else_does(gcp, cloud):
    ours, theirs = launch(cloud, cluster(cloud)), launch(cloud, cluster(cloud, key="another"))
    alone = launched(cloud, key="alone")
    for one, other in (ours, ours[::-1], theirs):
        assert gcp.allows(one.id, inside(gcp, other), SLURMD)
        assert gcp.allows(one.id, inside(gcp, other), 22)
    for stranger in (*theirs, alone):
        assert not gcp.allows(ours[0].id, inside(gcp, stranger), SLURMD)
        assert not gcp.allows(stranger.id, inside(gcp, ours[0]), SLURMD)
    for address in (CALLER.partition("/")[0], "198.51.100.9"):
        assert not gcp.allows(ours[1].id, address, SLURMD)
    assert gcp.allows(ours[1].id, CALLER.partition("/")[0], 22)


def test_the_rule_is_made_once_before_the_first_machine(gcp, cloud):
    launch(cloud, cluster(cloud, 3))
    made = [call for call in gcp.calls if call.action in (RULE, INSERT)]
    assert [call.action for call in made if call.action == INSERT or "sourceTags" in call.body] == [RULE, *[INSERT] * 3]


def test_a_machine_of_its_own_and_somebody_elses_rules_get_none(gcp, cloud):
    launched(cloud)
    launch(cloud, cluster(cloud, setup=Setup(network=Network(security_group="lab-ssh"))))
    assert rules(cloud) == {}
    assert gcp.called(INSERT)[-1].body["tags"] == {"items": ["lab-ssh"]}
    request = as_nodes(attempt_at(cloud), 2)[0].request
    setup = Setup(network=Network(security_group="lab-ssh"))
    remarks = cloud.resolve(replace(request, setup=setup), offered(cloud)).remarks
    assert any("let the 2 machines reach each other" in str(one) for one in remarks)


def test_what_broke_off_between_the_rule_and_the_machines_is_found_and_taken_away(gcp, cloud):
    attempts = cluster(cloud)
    gcp.stockout(times=1)
    with pytest.raises(NoCapacity):
        launch(cloud, attempts)
    ((name, user),) = rules(cloud).items()
    assert user is None
    (orphan,) = [one for one in cloud.orphans(REGION).items if one.name == name]
    assert orphan.tags["cloudgpu-id"] == attempts[0].machine
    cloud.remove_orphan(orphan)
    assert rules(cloud) == {}
    cloud.remove_orphan(orphan)  # gone already: no error


def test_another_attempt_in_the_same_network_has_a_rule_of_its_own(gcp, cloud):
    """So what takes the first one's away late takes nothing from the second."""
    gcp.stockout(times=1)
    first = cluster(cloud)
    with pytest.raises(NoCapacity):
        launch(cloud, first)
    second = launch(cloud, cluster(cloud, number=2))
    before = rules(cloud)
    assert sorted(user is None for user in before.values()) == [False, True]
    assert not cloud.clear_shared(id_of(first), REGION)
    gcp.advance(60)
    ((name, user),) = rules(cloud).items()
    assert before[name] == user
    assert user in {one.id for one in second}
    assert gcp.allows(second[0].id, inside(gcp, second[1]), SLURMD)


def test_a_lost_answer_about_the_rule_makes_it_once(gcp, cloud):
    gcp.faults.lose_reply(RULE, times=3)
    launch(cloud, cluster(cloud))
    assert len(rules(cloud)) == 1


def test_a_rule_that_somebody_opened_is_not_used(gcp, cloud):
    attempts = cluster(cloud)
    machines = launch(cloud, attempts)
    (name,) = rules(cloud)
    wide = {"name": name, "source_ranges": ["0.0.0.0/0"]}
    Plain(gcp)("Firewalls", "patch_unary", at="", firewall=name, firewall_resource=wide)
    assert gcp.allows(machines[0].id, "198.51.100.9", SLURMD)
    with pytest.raises(InvalidRequest, match="somebody has changed it") as refused:
        cloud.launch(attempts[1], deadline=soon(cloud))
    assert f"firewall-rules delete {name}" in refused.value.next


@pytest.mark.soak
def test_a_rule_in_use_stays_also_where_a_zone_is_silent(gcp, cloud):
    attempts = cluster(cloud)
    machines = launch(cloud, attempts)
    (orphan,) = [one for one in cloud.orphans(REGION).items if one.name in rules(cloud)]
    assert orphan.attached_to in {one.id for one in machines}
    with pytest.raises(InvalidRequest, match="which is there"):
        cloud.remove_orphan(orphan)
    assert not cloud.clear_shared(id_of(attempts), REGION)
    cloud.terminate(machines[1].id)
    gcp.advance(120)
    silence = gcp.faults.offline(zone=ids.zone_and_name(machines[0].id)[0])
    assert not cloud.clear_shared(id_of(attempts), REGION)
    gcp.faults.remove(silence)
    assert len(rules(cloud)) == 1
    cloud.terminate(machines[0].id)
    gcp.advance(120)
    assert not cloud.clear_shared(id_of(attempts), REGION)
    gcp.advance(60)
    assert cloud.clear_shared(id_of(attempts), REGION)
    assert gcp.firewalls() == [name for name in gcp.firewalls() if name.startswith("cloudgpu-shut-")]


def test_a_quota_for_three_refuses_four_before_anything_is_sent(gcp, cloud):
    item, request = offered(cloud), as_nodes(attempt_at(cloud), 4)[0].request
    gcp.limit("NVIDIA_T4_GPUS", 3, REGION)
    with pytest.raises(QuotaExceeded, match=r"allows 3 in .* 4 x .* have 4"):
        cloud.resolve(request, item)
    gcp.limit("NVIDIA_T4_GPUS", 4, REGION)
    assert cloud.resolve(request, item).call
    assert gcp.called(INSERT) == []
