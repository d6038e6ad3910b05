"""The nodes of a cluster on our model of AWS: one call, read back with plain boto3; never a part, never N twice."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml

from cloudgpu.core.model.cluster import node_of_tags
from cloudgpu.core.model.instances import TAG_ID, TAG_NODE
from cloudgpu.core.model.launch import Network, Setup
from cloudgpu.core.model.offers import Market
from cloudgpu.core.model.resources import Kind
from cloudgpu.errors import InvalidRequest, LaunchUncertain, NoCapacity, ProviderUnavailable, QuotaExceeded
from cloudgpu.testing import as_nodes
from tests.clouds.aws.plain import client, look
from tests.providers.aws.accounts import account, own
from tests.providers.aws.attempts import CALLER, USUAL, attempt_at, offered, quick, saved, soon


@pytest.fixture
def provider(aws, tmp_path):
    return quick(account(tmp_path))


def cluster(provider, item=None, *, count=4, setup=USUAL, **more):
    """Return the attempts of a cluster, each looked up as a plan of one is."""
    item = item or offered(provider)
    nodes = as_nodes(attempt_at(provider, item, setup=setup, **more), count)
    call = provider.resolve(nodes[0].request, item).call
    return [saved(replace(one, call=call)) for one in nodes]


def launch(provider, attempts):
    return provider.launch_together(attempts, deadline=soon())


def id_of(attempts):
    return attempts[0].machine.removesuffix("-0")


def tags_of(found):
    return {tag["Key"]: tag["Value"] for tag in found.get("Tags", ())}


def groups_of(attempts):
    """Return the placement groups and the security groups that bear the id of the first node."""
    meant = [{"Name": f"tag:{TAG_ID}", "Values": [attempts[0].machine]}]
    ec2 = client()
    placed = ec2.describe_placement_groups(Filters=meant)["PlacementGroups"]
    return placed, ec2.describe_security_groups(Filters=meant)["SecurityGroups"]


@pytest.mark.soak
def test_one_call_makes_all_with_tags_that_they_share_and_the_token_of_the_first(aws, provider):
    attempts = cluster(provider)
    made = launch(provider, attempts)
    (call,) = aws.called("RunInstances")
    sent = call.parameters
    assert (sent["MinCount"], sent["MaxCount"], sent["ClientToken"]) == (4, 4, attempts[0].token)
    shared = tags_of(sent["TagSpecifications"][0])
    assert (shared["Name"], shared[TAG_ID], TAG_NODE in shared) == ("contract-machine", id_of(attempts), False)
    nodes = [node_of_tags(one.tags) for one in made]
    assert [(one.name, one.id, one.node, one.nodes) for one in nodes] == [
        ("contract-machine", id_of(attempts), number, 4) for number in range(4)
    ]
    assert [look(client(), own(one.id))["AmiLaunchIndex"] for one in made] == [0, 1, 2, 3]


@pytest.mark.soak
def test_the_agents_settings_name_the_cluster_and_no_node(aws, provider):
    """All get the same text, so a node's name in it would be wrong on all others. A replay sends the same."""
    attempts = cluster(provider, count=2)
    for made in (*launch(provider, attempts), *launch(provider, attempts)):
        _, config = aws.user_data(own(made.id))
        (settings,) = [json.loads(text) for text in _texts(config) if text.startswith('{"id"')]
        assert settings["id"] == id_of(attempts)


def _texts(config):
    return [one["content"] for one in yaml.safe_load(config.text)["write_files"]]


@pytest.mark.soak
def test_the_machines_are_placed_together_in_a_group_that_bears_the_first_nodes_id(provider):
    attempts = cluster(provider)
    made = launch(provider, attempts)
    ((placed,), (group,)) = groups_of(attempts)
    assert (placed["Strategy"], placed["State"]) == ("cluster", "available")
    found = [look(client(), own(one.id)) for one in made]
    assert {one["Placement"]["GroupName"] for one in found} == {placed["GroupName"]}
    assert all(group["GroupId"] in {one["GroupId"] for one in machine["SecurityGroups"]} for machine in found)


@pytest.mark.soak
def test_a_type_that_takes_no_placement_group_is_launched_without_one_and_the_plan_says_so(aws, provider):
    item = offered(provider, "t3.small")
    attempts = cluster(provider, item, count=2)
    launch(provider, attempts)
    assert [len(some) for some in groups_of(attempts)] == [0, 1]
    assert "Placement" not in aws.called("RunInstances")[0].parameters
    remarks = provider.resolve(attempts[0].request, item).remarks
    assert [one for one in remarks if "takes no cluster placement group" in str(one)]


def test_only_members_reach_each_other_and_from_outside_only_the_caller_reaches_ssh(provider):
    """Each way in of each group of each machine: the group itself, or the caller to the port of SSH."""
    made = launch(provider, cluster(provider))
    groups = {one["GroupId"] for found in made for one in look(client(), own(found.id))["SecurityGroups"]}
    ways = []
    for group in client().describe_security_groups(GroupIds=sorted(groups))["SecurityGroups"]:
        for rule in group["IpPermissions"]:
            assert not rule.get("Ipv6Ranges")
            assert not rule.get("PrefixListIds")
            ways += [(one["CidrIp"], rule["FromPort"], rule["ToPort"]) for one in rule["IpRanges"]]
            ways += [(one["GroupId"] == group["GroupId"], rule["IpProtocol"]) for one in rule["UserIdGroupPairs"]]
    assert sorted(ways, key=str) == [(CALLER, 22, 22), (True, "-1")]


@pytest.mark.soak
def test_another_cluster_of_the_same_person_is_in_another_group(provider):
    first, second = cluster(provider, count=2), cluster(provider, count=2, key="another")
    inside = []
    for attempts in (first, second):
        launch(provider, attempts)
        inside += [one["GroupId"] for one in groups_of(attempts)[1]]
    assert len(set(inside)) == 2


def test_somebody_elses_group_stays_as_it_is_beside_that_of_the_cluster(aws, provider):
    vpc = client().describe_vpcs()["Vpcs"][0]["VpcId"]
    theirs = client().create_security_group(GroupName="theirs", Description="x", VpcId=vpc)["GroupId"]
    before = client().describe_security_groups(GroupIds=[theirs])["SecurityGroups"]
    attempts = cluster(provider, count=2, setup=Setup(network=Network(security_group=theirs)))
    launch(provider, attempts)
    (interface,) = aws.called("RunInstances")[0].parameters["NetworkInterfaces"]
    assert interface["Groups"] == [theirs, groups_of(attempts)[1][0]["GroupId"]]
    assert client().describe_security_groups(GroupIds=[theirs])["SecurityGroups"] == before


@pytest.mark.soak
def test_who_may_connect_is_changed_in_the_owners_group_and_not_in_the_clusters(provider):
    attempts = cluster(provider, count=2)
    made = launch(provider, attempts)
    inside = groups_of(attempts)[1]
    provider.allow(made[1].id, "ben", "198.51.100.9/32")
    assert provider.allowed(made[0].id) == {"caller": CALLER, "ben": "198.51.100.9/32"}
    assert groups_of(attempts)[1] == inside


@pytest.mark.parametrize("setup", [USUAL, replace(USUAL, keep_disk=False)])
def test_no_disk_of_a_node_outlives_its_machine_by_itself(aws, provider, setup):
    made = launch(provider, cluster(provider, offered(provider, market=Market.SPOT), count=2, setup=setup))
    assert len(client().describe_spot_instance_requests()["SpotInstanceRequests"]) == 2
    for one in made:
        aws.interrupt(own(one.id))
    assert client().describe_volumes()["Volumes"] == []


@pytest.mark.soak
def test_a_disk_that_is_kept_when_its_node_ends_bears_that_nodes_own_tags(provider):
    attempts = cluster(provider, offered(provider, market=Market.SPOT))
    made = launch(provider, attempts)
    provider.terminate_keeping_disk(made[2].id)
    (left,) = [one for one in provider.resources().items if one.attached_to is None]
    assert left.kind is Kind.DISK
    assert {**left.tags, **attempts[2].tags} == dict(left.tags)


def test_a_lost_reply_makes_four_and_not_eight(aws, provider):
    aws.faults.lose_reply("RunInstances")
    made = launch(provider, cluster(provider))
    assert len(aws.called("RunInstances")) == 2
    assert sorted(one.id for one in aws.instances()) == sorted(own(one.id) for one in made)
    assert len(made) == 4


@pytest.mark.soak
def test_a_call_that_is_never_answered_is_uncertain_and_finished_by_another_process(aws, provider, tmp_path):
    attempts = cluster(provider)
    aws.faults.lose_reply("RunInstances", times=9)
    with pytest.raises(ProviderUnavailable):
        provider.launch_together(attempts, deadline=soon(minutes=0))
    aws.faults.clear()
    other = quick(account(tmp_path / "other"))
    assert len(launch(other, [saved(one) for one in attempts])) == 4
    assert len(aws.instances()) == 4


@pytest.mark.soak
def test_where_all_but_one_fit_none_is_made_and_nothing_is_left(aws, provider):
    attempts = cluster(provider)
    aws.leave("g4dn.xlarge", "us-east-1b", 3)
    with pytest.raises(NoCapacity):
        launch(provider, attempts)
    assert (aws.instances(), groups_of(attempts)) == ([], ([], []))


@pytest.mark.soak
def test_a_refusal_whose_clean_up_fails_is_the_refusal(aws, provider):
    attempts = cluster(provider)
    aws.leave("g4dn.xlarge", "us-east-1b", 3)
    aws.faults.deny("DeletePlacementGroup")
    with pytest.raises(NoCapacity):
        launch(provider, attempts)
    aws.faults.clear()
    left = {one.kind: one for one in provider.orphans().items if one.tags.get(TAG_ID) == attempts[0].machine}
    assert set(left) == {Kind.PLACEMENT_GROUP, Kind.SECURITY_GROUP}
    provider.remove_orphan(left[Kind.PLACEMENT_GROUP])
    assert groups_of(attempts)[0] == []


@pytest.mark.soak
def test_a_quota_for_three_refuses_four_before_anything_is_sent(aws, provider):
    aws.model.quotas[("", "L-DB2E81BA")] = 12.0
    with pytest.raises(QuotaExceeded, match=r"4 x g4dn\.xlarge needs 16"):
        cluster(provider)
    assert aws.called("RunInstances") == []
    assert len(launch(provider, cluster(provider, count=3))) == 3


@pytest.mark.soak
def test_a_node_that_aws_does_not_show_any_more_leaves_a_replay_uncertain(aws, provider):
    attempts = cluster(provider)
    made = launch(provider, attempts)
    client().terminate_instances(InstanceIds=[own(made[1].id)])
    aws.advance(1)  # it is terminated, and shown for an hour
    aws.advance(3_700)
    with pytest.raises(LaunchUncertain, match="3 of the 4 machines"):
        launch(provider, attempts)
    assert len(aws.instances(live=True)) == 3


@pytest.mark.soak
def test_what_the_nodes_share_is_in_use_until_the_last_has_shut_down(aws, provider):
    attempts = cluster(provider, count=2)
    made = launch(provider, attempts)
    aws.dwell(shutting_down=60)
    for one in made:
        provider.terminate(one.id)
    assert not provider.clear_shared(id_of(attempts), "us-east-1")
    (placed,) = [one for one in provider.orphans().items if one.kind is Kind.PLACEMENT_GROUP]
    assert placed.attached_to in {one.id for one in made}
    with pytest.raises(InvalidRequest, match=r"InvalidPlacementGroup\.InUse"):
        provider.remove_orphan(placed)
    aws.advance(61)
    assert not provider.clear_shared(id_of(attempts), "us-east-1"), "it was there at this look"
    assert provider.clear_shared(id_of(attempts), "us-east-1")
    assert groups_of(attempts) == ([], [])


@pytest.mark.parametrize("lost", ["CreatePlacementGroup", "CreateSecurityGroup", "AuthorizeSecurityGroupIngress"])
def test_a_lost_reply_before_the_launch_makes_nothing_twice(aws, provider, lost):
    attempts = cluster(provider, count=2)
    aws.faults.lose_reply(lost)
    assert len(launch(provider, attempts)) == 2
    assert [len(some) for some in groups_of(attempts)] == [1, 1]


def test_a_placement_group_of_that_name_which_is_somebody_elses_is_not_used(aws, provider):
    attempts = cluster(provider, count=2)
    client().create_placement_group(GroupName=f"cloudgpu-{id_of(attempts)}-1", Strategy="spread")
    with pytest.raises(InvalidRequest, match="not this cluster's"):
        launch(provider, attempts)
    assert aws.called("RunInstances") == []
    assert len(client().describe_placement_groups()["PlacementGroups"]) == 1
