"""The nodes of a cluster on our model of Azure: one network for all of them, which goes with the last."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloudgpu.core.launch.attempt import attempt_from_json, attempt_to_json
from cloudgpu.core.model.cluster import node_of_tags
from cloudgpu.core.model.launch import Network, Setup
from cloudgpu.core.model.resources import Kind
from cloudgpu.errors import InvalidRequest, LaunchUncertain, NoCapacity, QuotaExceeded
from cloudgpu.testing import as_nodes
from tests.providers.azure.attempts import CALLER, T4, attempt_at, calls, launched, offered, provider_of

SLURMD = 6818
CALLER_AT, ELSEWHERE = "203.0.113.7", "198.51.100.9"
PUT = "VirtualMachines.CreateOrUpdate"


@pytest.fixture
def provider(azure_arm, tmp_path):
    return provider_of(azure_arm, tmp_path)


def cluster(provider, count=2, **more):
    """The attempts of a cluster, as they are saved."""
    nodes = as_nodes(attempt_at(provider, **more), count, engine="slurm")
    return [attempt_from_json(attempt_to_json(one)) for one in nodes]


def launch(provider, attempts):
    return [launched(provider, one) for one in attempts]


def id_of(attempts):
    return node_of_tags(attempts[0].tags).id


def networks(provider):
    """What `orphans` tells of the networks of clusters: the id, and what uses it."""
    found = [one for one in provider.orphans("eastus").items if one.kind is Kind.GROUP and "/cloudgpu-net-" in one.id]
    return {one.id: one.attached_to for one in found}


def end(azure_arm, provider, machine):
    provider.terminate(machine.id)
    azure_arm.advance(900)


@pytest.mark.soak
def test_members_reach_each_other_on_every_port_and_nobody_else_does(azure_arm, provider):
    ours, (theirs, _) = launch(provider, cluster(provider)), launch(provider, cluster(provider, key="another"))
    alone = launched(provider, attempt_at(provider, key="alone"))
    assert azure_arm.reaches(ours[0].id, ours[1].id, SLURMD)
    assert azure_arm.reaches(ours[1].id, ours[0].id, 22)
    for stranger in (theirs, alone):
        assert not azure_arm.reaches(stranger.id, ours[0].id, SLURMD)
        assert not azure_arm.reaches(ours[1].id, stranger.id, SLURMD)
    for one in ours:
        assert azure_arm.allows(one.id, CALLER_AT, 22)
        assert not azure_arm.allows(one.id, CALLER_AT, SLURMD)
        assert not azure_arm.allows(one.id, ELSEWHERE, 22)


def test_the_network_is_made_once_and_the_other_nodes_only_look(azure_arm, provider):
    first, second = cluster(provider)
    with calls(azure_arm) as made:
        launched(provider, first)
    assert made.count("VirtualNetworks.CreateOrUpdate") == 1
    with calls(azure_arm) as made:
        launched(provider, second)
    assert (made.count("VirtualNetworks.Get"), made.count("VirtualNetworks.CreateOrUpdate")) == (1, 0)


def test_what_broke_off_between_the_network_and_the_machines_is_found_and_taken_away(azure_arm, provider):
    attempts = cluster(provider)
    azure_arm.stockout(times=1)
    with pytest.raises(NoCapacity):
        launch(provider, attempts)
    ((name, user),) = networks(provider).items()
    assert user is None
    (orphan,) = [one for one in provider.orphans("eastus").items if one.id == name]
    assert orphan.tags["cloudgpu-id"] == attempts[0].machine
    provider.remove_orphan(orphan)
    azure_arm.advance(900)
    assert networks(provider) == {}
    assert provider.clear_shared(id_of(attempts), "eastus")


def test_what_somebody_put_into_the_group_of_the_network_is_not_lost(azure_arm, provider, sdk):
    attempts = cluster(provider)
    azure_arm.stockout(times=1)
    with pytest.raises(NoCapacity):
        launch(provider, attempts)
    ((name, _),) = networks(provider).items()
    group = name.split("/")[1]
    body = {"location": "eastus", "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 8}}
    sdk.compute.disks.begin_create_or_update(group, "mine", body).result()
    for _ in range(2):
        assert not provider.clear_shared(id_of(attempts), "eastus")
        azure_arm.advance(900)
        assert azure_arm.billable() == [("disk", "mine")]
    sdk.compute.disks.begin_delete(group, "mine").result()
    assert not provider.clear_shared(id_of(attempts), "eastus")
    azure_arm.advance(900)
    assert networks(provider) == {}


@pytest.mark.soak
def test_a_network_in_which_a_machine_is_stays(azure_arm, provider):
    attempts = cluster(provider)
    machines = launch(provider, attempts)
    ((name, user),) = networks(provider).items()
    assert user in {one.id for one in machines}
    (orphan,) = [one for one in provider.orphans("eastus").items if one.id == name]
    with pytest.raises(InvalidRequest, match="in use"):
        provider.remove_orphan(orphan)
    end(azure_arm, provider, machines[0])  # node 0, whose id it bears
    assert not provider.clear_shared(id_of(attempts), "eastus")
    azure_arm.advance(900)
    assert networks(provider) == {name: machines[1].id}
    end(azure_arm, provider, machines[1])
    assert not provider.clear_shared(id_of(attempts), "eastus")
    azure_arm.advance(900)
    assert provider.clear_shared(id_of(attempts), "eastus")
    assert azure_arm.billable() == []


@pytest.mark.soak
def test_another_attempt_has_a_network_of_its_own(azure_arm, provider):
    """So what takes the first one's away late takes nothing from the second."""
    azure_arm.stockout(times=1)
    first = cluster(provider)
    with pytest.raises(NoCapacity):
        launch(provider, first)
    second = launch(provider, cluster(provider, number=2))
    assert len(networks(provider)) == 2
    assert not provider.clear_shared(id_of(first), "eastus")
    azure_arm.advance(900)
    (user,) = networks(provider).values()
    assert user in {one.id for one in second}


@pytest.mark.parametrize("action", ["ResourceGroups.CreateOrUpdate", "VirtualNetworks.CreateOrUpdate"])
def test_a_lost_answer_on_the_way_is_one_network_and_one_machine_each(azure_arm, provider, action):
    attempts = cluster(provider)
    azure_arm.faults.lose_reply(action, times=2)
    try:
        launch(provider, attempts)
    except LaunchUncertain:
        launch(provider, attempts)
    assert len(networks(provider)) == 1
    assert len(azure_arm.instances(live=True)) == 2


def test_a_subnet_of_ones_own_is_used_as_it_is(azure_arm, provider, sdk):
    sdk.group("lab")
    subnet = {"name": "inside", "properties": {"addressPrefix": "10.5.0.0/24"}}
    body = {
        "location": "eastus",
        "properties": {"addressSpace": {"addressPrefixes": ["10.5.0.0/16"]}, "subnets": [subnet]},
    }
    made = sdk.network.virtual_networks.begin_create_or_update("lab", "lab", body).result().as_dict()
    theirs = Network(subnet=made["properties"]["subnets"][0]["id"], ssh_from=(CALLER,))
    machines = launch(provider, cluster(provider, setup=Setup(network=theirs)))
    assert networks(provider) == {}
    assert azure_arm.reaches(machines[0].id, machines[1].id, SLURMD)


def test_a_limit_for_three_refuses_four_before_anything_is_sent(azure_arm, provider):
    item, request = offered(provider, T4), as_nodes(attempt_at(provider), 4)[0].request
    azure_arm.quota("eastus", "cores", 15)  # four each
    with pytest.raises(QuotaExceeded, match=r"allows 15 vCPUs, of which 0 are used, and 4 x .* need 16"):
        provider.resolve(request, item)
    azure_arm.quota("eastus", "cores", 16)
    assert provider.resolve(request, item).call
    with pytest.raises(QuotaExceeded):
        provider.resolve(replace(request, cluster=request.cluster._replace(nodes=5)), item)
