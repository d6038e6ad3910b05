"""Who may connect, on our model of AWS: rules of our own group by label, the new before the old, nobody else's."""

from __future__ import annotations

import boto3
import pytest

from cloudgpu.core.model.launch import Network
from cloudgpu.errors import InstanceNotFound, InvalidRequest
from cloudgpu.providers.abilities import HasFirewall
from cloudgpu.providers.aws.network.security_group import MAX_DESCRIPTION, Changes, Rule, changes, description, rules
from cloudgpu.providers.aws.provider import AwsProvider
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.shared.rules import ssh_sources
from cloudgpu.testing import ManualClock

HOME, CAFE, LAB = "203.0.113.7/32", "198.51.100.4/32", "192.0.2.0/24"
CHANGING = ("AuthorizeSecurityGroupIngress", "RevokeSecurityGroupIngress", "UpdateSecurityGroupRuleDescriptionsIngress")


class SafetyNet:
    """A group of an owner with a machine in it, made with plain boto3."""

    def __init__(self, aws, tmp_path, *, owner="ada", port=22):
        self.server = aws
        self.ec2 = boto3.client("ec2")
        self.group = self.make_group(owner)
        self.machine = self.make_machine(self.group)
        settings = ProviderSettings("aws", {"ssh_port": port}, tmp_path, ManualClock())
        self.provider = AwsProvider(settings)

    def make_group(self, owner):
        vpc = self.ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
        tags = [{"Key": "cloudgpu-owner", "Value": owner}] if owner else []
        given = {"TagSpecifications": [{"ResourceType": "security-group", "Tags": tags}]} if tags else {}
        name = f"cloudgpu-{owner or 'theirs'}"
        return self.ec2.create_security_group(GroupName=name, Description="x", VpcId=vpc, **given)["GroupId"]

    def make_machine(self, group):
        image = self.ec2.describe_images(Filters=[{"Name": "architecture", "Values": ["x86_64"]}])["Images"][0]
        tags = [{"Key": "cloudgpu-id", "Value": "cg-1"}, {"Key": "cloudgpu-owner", "Value": "ada"}]
        made = self.ec2.run_instances(
            ImageId=image["ImageId"],
            InstanceType="t3.small",
            MinCount=1,
            MaxCount=1,
            SecurityGroupIds=[group],
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )
        return f"us-east-1/{made['Instances'][0]['InstanceId']}"

    def add(self, cidr, text=None, port=22):
        source = {"CidrIp": cidr, **({"Description": text} if text else {})}
        rule = {"IpProtocol": "tcp", "FromPort": port, "ToPort": port, "IpRanges": [source]}
        self.ec2.authorize_security_group_ingress(GroupId=self.group, IpPermissions=[rule])

    @property
    def seen(self):
        """Each rule as AWS has it: network, port, description."""
        group = self.ec2.describe_security_groups(GroupIds=[self.group])["SecurityGroups"][0]
        return {
            (source["CidrIp"], permission["FromPort"], source.get("Description", ""))
            for permission in group["IpPermissions"]
            for source in permission["IpRanges"]
        }

    def changed(self):
        """The changing calls since the last time, in their order."""
        made = [call.action for call in self.server.calls if call.action in CHANGING]
        self.server.calls.clear()
        return made


@pytest.fixture
def net(aws, tmp_path):
    return SafetyNet(aws, tmp_path)


def test_the_provider_can_say_and_change_who_may_connect(net):
    assert isinstance(net.provider, HasFirewall)
    assert net.provider.allowed(net.machine) == {}
    net.provider.allow(net.machine, "caller", HOME)
    assert net.provider.allowed(net.machine) == {"caller": HOME}
    assert net.seen == {(HOME, 22, "cloudgpu caller")}


def test_a_moved_caller_is_let_in_before_the_old_address_is_taken_out(net):
    net.add(HOME, "cloudgpu caller")
    net.provider.allow(net.machine, "caller", CAFE)
    made = [call.action for call in net.server.calls if call.action in CHANGING][-2:]
    assert made == ["AuthorizeSecurityGroupIngress", "RevokeSecurityGroupIngress"]
    assert net.seen == {(CAFE, 22, "cloudgpu caller")}


def test_what_is_so_already_changes_nothing(net):
    net.add(HOME, "cloudgpu caller")
    before = len([call for call in net.server.calls if call.action in CHANGING])
    net.provider.allow(net.machine, "caller", HOME)
    net.provider.allow(net.machine, "cg-1.k3d9", None)
    assert len([call for call in net.server.calls if call.action in CHANGING]) == before


def test_what_a_crash_between_the_two_left_open_is_closed_by_the_next_call(net):
    net.add(HOME, "cloudgpu caller")
    net.add(CAFE, "cloudgpu caller")
    net.provider.allow(net.machine, "caller", CAFE)
    assert net.seen == {(CAFE, 22, "cloudgpu caller")}


def test_two_labels_with_one_address_share_a_rule_and_neither_loses_it(net):
    net.provider.allow(net.machine, "caller", HOME)
    net.provider.allow(net.machine, "cg-1.k3d9", HOME)
    assert net.provider.allowed(net.machine) == {"caller": HOME, "cg-1.k3d9": HOME}
    assert net.seen == {(HOME, 22, "cloudgpu caller, share cg-1.k3d9")}
    net.provider.allow(net.machine, "caller", CAFE)
    assert net.seen == {(CAFE, 22, "cloudgpu caller"), (HOME, 22, "cloudgpu share cg-1.k3d9")}
    net.provider.allow(net.machine, "cg-1.k3d9", None)
    assert net.seen == {(CAFE, 22, "cloudgpu caller")}


def test_rules_of_others_in_our_group_are_neither_counted_nor_touched(net):
    theirs = {("192.0.2.9/32", 22, ""), (LAB, 22, "cloudgpu my own words"), (LAB, 443, "the web")}
    for cidr, port, text in theirs:
        net.add(cidr, text, port)
    net.provider.allow(net.machine, "caller", HOME)
    net.provider.allow(net.machine, "caller", None)
    assert net.provider.allowed(net.machine) == {}
    assert net.seen == theirs


def test_a_rule_that_somebody_made_by_hand_for_the_same_address_is_enough(net):
    net.add(CAFE, "by hand")
    net.add(HOME, "cloudgpu caller")
    net.provider.allow(net.machine, "caller", CAFE)
    assert net.seen == {(CAFE, 22, "by hand")}


def test_a_rule_that_another_process_adds_at_the_same_moment_keeps_both_labels(net):
    def meanwhile(_number, action, phase):
        if action == "AuthorizeSecurityGroupIngress" and phase == "before":
            net.server.on_call = None
            net.add(HOME, "cloudgpu caller")

    net.server.on_call = meanwhile
    net.provider.allow(net.machine, "cg-1.k3d9", HOME)
    assert net.seen == {(HOME, 22, "cloudgpu caller, share cg-1.k3d9")}


def test_somebody_elses_group_says_nothing_and_is_not_changed(net):
    group = net.make_group(None)
    machine = net.make_machine(group)
    assert net.provider.allowed(machine) == {}
    with pytest.raises(InvalidRequest, match="Somebody else's security group") as caught:
        net.provider.allow(machine, "caller", HOME)
    assert caught.value.next
    assert net.changed() == []


def test_the_group_of_another_owner_is_somebody_elses(net):
    machine = net.make_machine(net.make_group("bob"))
    with pytest.raises(InvalidRequest):
        net.provider.allow(machine, "caller", HOME)


def test_a_machine_that_is_gone_or_never_was_is_not_found(net):
    net.ec2.terminate_instances(InstanceIds=[net.machine.split("/")[1]])
    for id_, kind in (
        (net.machine, InstanceNotFound),
        ("us-east-1/i-0123456789abcdef0", InstanceNotFound),
        ("amber-fox", InvalidRequest),  # AWS is not asked, so nothing is known to be gone
    ):
        with pytest.raises(kind):
            net.provider.allowed(id_)
        with pytest.raises(kind):
            net.provider.allow(id_, "caller", HOME)


def test_the_port_is_that_of_the_account(aws, tmp_path):
    net = SafetyNet(aws, tmp_path, port=2222)
    net.add(LAB, "cloudgpu caller", 22)
    assert net.provider.allowed(net.machine) == {}
    net.provider.allow(net.machine, "caller", HOME)
    assert net.seen == {(HOME, 2222, "cloudgpu caller")}


@pytest.mark.parametrize("label", ["", "Ada", "a b", "share x", "x, caller", "-x", "a" * 101])
def test_what_cannot_stand_in_a_description_is_no_label(label):
    with pytest.raises(InvalidRequest):
        description([label])


def test_a_rule_names_no_more_labels_than_fit_its_description():
    labels = [f"cg-0123456789abcdef.{number:08}" for number in range(8)]
    assert len(description(labels[:6])) <= MAX_DESCRIPTION
    with pytest.raises(InvalidRequest, match="8 keys are let in from one network already") as caught:
        description(labels)
    assert caught.value.field == "--from"


def test_changes_are_what_leads_from_one_to_the_other_and_no_more():
    found = (Rule(HOME, 22, 22, ("caller", "cg-1.x")), Rule(LAB, 22, 22, ("cg-2.y",)))
    assert changes(found, {"caller": HOME}, 22) == Changes()
    assert changes(found, {"caller": LAB, "cg-2.y": None, "cg-1.x": CAFE}, 22) == Changes(
        added=(Rule(CAFE, 22, 22, ("cg-1.x",)),),
        renamed=(Rule(LAB, 22, 22, ("caller",)),),
        removed=(Rule(HOME, 22, 22, ("caller", "cg-1.x")),),
    )


def test_a_launch_names_who_may_open_ssh_or_the_network_itself():
    assert ssh_sources(Network(ssh_from=(HOME,)), "172.31.0.0/16") == {"caller": HOME}
    assert ssh_sources(Network(ssh_from=(HOME, LAB)), "172.31.0.0/16") == {"caller": HOME, "caller-2": LAB}
    assert ssh_sources(Network(public_ip=False, jump="bastion"), "172.31.0.0/16") == {"inside": "172.31.0.0/16"}
    assert rules({}) == ()
