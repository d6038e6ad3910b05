"""Every call that cloudgpu makes on AWS is allowed by the document of its use, and no document allows more.

Calls are captured from real runs of the command line against our model of AWS, and judged with the tags that things
bear at that moment. What AWS itself makes of a document is not proved here: docs/verified.md says what is left to a
live account.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

import boto3
import pytest
from botocore.exceptions import UnknownServiceError

from cloudgpu.access.ssh.client_files import new_host_key
from cloudgpu.cli.app import run
from cloudgpu.config.files.user_files import data_dir
from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.lifecycle.timers import repair_timers
from cloudgpu.control.outage import opening as sessions
from cloudgpu.control.spot.history import better_location
from cloudgpu.providers.aws.account.permissions import CHANGE_PROBES, READ_PROBES, UNTESTED_PROBES
from tests.address_service import AddressService
from tests.clouds.aws.calls import Call
from tests.clouds.aws.errors import PERMISSIONS
from tests.clouds.aws.fixtures import aws, aws_process  # noqa: F401
from tests.clouds.aws.iam import Judge, actions
from tests.clouds.aws.plain import role_of_timers
from tests.clouds.aws.userdata import cloud_config

NAMES = ("aws-init", "aws-launch", "aws-machine", "aws-read", "aws-reap", "aws-timer", "aws-watch")
# Actions that are no call of ours, each with the call that takes them, as AWS's documentation has it.
NO_CALLS = {
    "iam:PassRole": "RunInstances with an instance profile, AddRoleToInstanceProfile, CreateSchedule",
    "iam:CreateServiceLinkedRole": "RunInstances on the spot market, once in the life of an account",
    "iam:TagRole": "CreateRole with tags",
    "iam:TagInstanceProfile": "CreateInstanceProfile with tags",
}
FREE = {"sts:GetCallerIdentity"}  # AWS: no permissions are required to perform this operation
LARGEST = 6_144  # characters of a managed policy, blanks not counted (IAM and STS quotas)
UP = ("up", "--yes", "--no-wait", "--template", "bare", "--ssh-from", "198.51.100.7/32")


def document(name, ledger=""):
    """Return a document; that of a watcher is filled in with the ledger's id, as docs/permissions.md says."""
    text = (data_dir("policies") / "permissions" / f"{name}.json").read_text()
    return json.loads(text.replace("LEDGER-ID", ledger or "LEDGER-ID"))


class Watched:
    """A user of the model; `under` a document, every call is judged by it."""

    def __init__(self, server, home, monkeypatch):
        self.server, self.home, self._monkeypatch = server, home, monkeypatch
        self.machines = server.serve_ssh()
        self.service = AddressService(b"198.51.100.7")
        (home / "config.toml").write_text(
            f'owner = "ada"\nprovider = "aws"\naddress_services = ["{self.service.url}"]\n'
            f"[accounts.aws]\nssh_port = {server.ssh_port}\nregions = ['us-east-1']\n"
            f'timer_role = "{role_of_timers("made-before")}"\n'
        )

    @contextmanager
    def under(self, name, ledger=""):
        judge = Judge(document(name, ledger))

        def before(number, _action, phase):
            if phase == "before" and self.server.calls[number - 1].action:
                call = self.server.calls[number - 1]
                if f"{call.service}:{call.action}" not in FREE:
                    judge.see(call)

        self.server.on_call = before
        yield judge
        self.server.on_call = None
        assert judge.faults == []

    @contextmanager
    def unseen(self):
        """Let calls of the test's own pass unjudged."""
        before, self.server.on_call = self.server.on_call, None
        yield
        self.server.on_call = before

    def ledger(self):
        """Return the id of the user's ledger."""
        return sessions.open_session(os.environ).ledger.id

    def a_day_later(self):
        """Let a day pass, here and at AWS."""
        self.server.advance(86_400)
        later = partial(sessions.open_session, clock=lambda: sessions.utc_now() + timedelta(days=1))
        self._monkeypatch.setattr(sessions, "open_session", later)

    def ask_for_regions(self):
        """Take the list of regions out of the settings: AWS is asked for it then. All but one are left out again."""
        others = [one for one in boto3.Session().get_available_regions("ec2") if one != "us-east-1"]
        config = self.home / "config.toml"
        config.write_text(config.read_text().replace("regions = ['us-east-1']", f"exclude_regions = {others}"))

    def settle(self):
        """Put the agent into the user's home, as the machine's own start script does."""
        (machine,) = self.server.instances(live=True)
        base = self.machines.home(machine.id) / ".cloudgpu"
        base.mkdir(exist_ok=True)
        for file in cloud_config(str(machine.user_data))["write_files"]:
            if file["path"].endswith(("/agent", "/agent.py", "/agent.json")):
                path = base / file["path"].rpartition("/")[2]
                path.write_text(file["content"])
                path.chmod(0o700)

    def sweep(self):
        """Compare the timers in the cloud with the ledger, as a nightly pass does; somebody took all of them away."""
        with self.unseen():
            boto3.client("scheduler", region_name="us-east-1").delete_schedule_group(Name="cloudgpu")
        session = sessions.open_session(os.environ)
        for there in (False, True):
            done = repair_timers(session, session.ledger.machines(), sweep=True)
            assert (done.set == [], done.errors) == (there, [])

    def chooses_a_zone(self):
        """Choose the zone of a spot machine as a job with a deadline does."""
        session = sessions.open_session(os.environ)
        options = {"gpu": "t4", "spot": True, "template": "bare", "ssh_from": "198.51.100.7/32"}
        better_location(session, prepare(session, parse_request(**options)))

    def examines(self):
        """Examine the account as `doctor` does, with the role of timers that init makes; without what it probes."""
        config = self.home / "config.toml"
        config.write_text(config.read_text().replace("role/made-before", "role/cloudgpu-timer"))
        with self.unseen():
            role_of_timers()
        sessions.open_session(os.environ).provider("aws").findings("us-east-1")

    def over(self, name):
        """Let a machine be past its renew-until, by its tag."""
        with self.unseen():
            ec2 = boto3.client("ec2", region_name="us-east-1")
            tags = [{"Key": "cloudgpu-renew-until", "Value": "1700000000"}]
            ec2.create_tags(Resources=[self.id_of(name)], Tags=tags)

    def id_of(self, name):
        """Return EC2's id of a machine."""
        return sessions.open_session(os.environ).find(name).provider_id.partition("/")[2]

    def do(self, *words, code=0):
        assert run(list(words)) == code, words


@pytest.fixture
def user(aws, own_home, monkeypatch):  # noqa: F811
    watched = Watched(aws, own_home, monkeypatch)
    yield watched
    watched.service.end()


def unused(judge, name):
    """What of a document nothing needed: its actions, and its statements."""
    left = actions(document(name)) - judge.actions - set(NO_CALLS)
    sids = {one["Sid"] for one in document(name)["Statement"] if set(_listed(one["Action"])) - set(NO_CALLS)}
    return sorted(left), sorted(sids - judge.used)


def _listed(value):
    return value if isinstance(value, list) else [value]


def look(user):
    """All that reads."""
    user.do("ls", "--refresh")
    user.do("up", "--dry-run", "--gpu", "t4", "--spot", "--zone", "us-east-1b", "--ssh-from", "198.51.100.7/32")
    user.do("up", "--dry-run", "--gpu", "t4", "--zone", "us-east-1z", code=2)  # the zones that there are, are named
    user.do("up", "--dry-run", "--instance-type", "t3.small", "--ssh-from", "198.51.100.7/32")
    user.do("up", "--dry-run", "--gpu", "t4", "--no-public-ip", "--jump", "ada@bastion")
    user.do("quota", "--region", "us-east-1")
    user.do("regions", "--gpu", "t4")
    user.do("orphans")
    user.ask_for_regions()
    user.do("ls", "--refresh")


def left_behind(user):
    """Let there be an address and an interface that nothing uses, and clean up after all launches, a day later."""
    ledger = user.ledger()
    tags = [{"Key": "cloudgpu-ledger", "Value": ledger}]
    ec2 = boto3.client("ec2", region_name="us-east-1")
    with user.unseen():
        ec2.allocate_address(Domain="vpc", TagSpecifications=[{"ResourceType": "elastic-ip", "Tags": tags}])
        subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
        named = [{"ResourceType": "network-interface", "Tags": tags}]
        ec2.create_network_interface(SubnetId=subnet, TagSpecifications=named)
    user.a_day_later()
    user.do("orphans", "--clean", "--yes")
    with user.unseen():
        assert ec2.describe_key_pairs()["KeyPairs"] == ec2.describe_addresses()["Addresses"] == []


@pytest.mark.soak
def test_reading_needs_its_document_and_no_more(user):
    with user.under("aws-read") as judge:
        user.do(*UP, "--gpu", "t4", "--dry-run")
        look(user)
        user.examines()
    missing = [action for action in unused(judge, "aws-read")[0] if action not in ONCE_THERE_IS_A_MACHINE]
    assert missing == []


# Read only where there is something: an owner's key and group, spot requests, a machine's timer.
ONCE_THERE_IS_A_MACHINE = {
    "ec2:DescribeKeyPairs",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSpotInstanceRequests",
    "scheduler:GetSchedule",
}


def test_launching_and_all_that_follows_needs_its_document_and_no_more(user, tmp_path):
    key = tmp_path / "ben.pub"
    key.write_text(new_host_key().public_line)
    with user.under("aws-launch") as judge:
        user.do(*UP, "--name", "fox", "--gpu", "t4", "--volume", "data:20")
        user.sweep()
        for words in (["stop"], ["start"], ["extend", "80h"], ["hold", "1h"]):
            user.do(words[0], "fox", *words[1:], "--yes")
        user.do("allow", "fox", "--from", "198.51.100.8/32")
        user.settle()
        user.do("share", "fox", "--key", str(key), "--from", "198.51.100.8/32")
        user.do("allow", "fox", "--from", "198.51.100.7/32")
        user.do("image", "save", "fox", "--name", "mine", "--yes")
        user.do("down", "fox", "--yes")
        user.do(*UP, "--name", "elk", "--gpu", "t4", "--spot")
        user.do("stop", "elk", "--yes")
        user.do("start", "elk", "--yes")
        user.do("down", "elk", "--yes")
        user.do(*UP, "--name", "owl", "--gpu", "t4", "--spot", "--persistent")
        user.do("stop", "owl", "--yes")
        user.do("down", "owl", "--yes")
        user.do(*UP, "--name", "ant", "--gpu", "t4", "--nodes", "2", "--engine", "none")
        user.do("down", "--all", "--yes")
        user.do("image", "rm", "mine", "--yes")
        user.do("volume", "rm", "data", "--yes")
        user.chooses_a_zone()
        left_behind(user)
        user.do("quota", "--request", "L-DB2E81BA=128", "--region", "us-east-1", "--yes")
        look(user)
        user.examines()
    assert unused(judge, "aws-launch") == ([], [])


# What launching needs beyond what reaping does.
LAUNCHING_ALONE = set(
    """
    ec2:AttachVolume
    ec2:AuthorizeSecurityGroupIngress
    ec2:CreateImage
    ec2:CreatePlacementGroup
    ec2:CreateSecurityGroup
    ec2:CreateVolume
    ec2:DescribeAvailabilityZones
    ec2:DescribeInstanceTypeOfferings
    ec2:DescribeInstanceTypes
    ec2:DescribeSubnets
    ec2:DescribeVpcs
    ec2:GetSpotPlacementScores
    ec2:ImportKeyPair
    ec2:RevokeSecurityGroupIngress
    ec2:RunInstances
    ec2:StartInstances
    ec2:UpdateSecurityGroupRuleDescriptionsIngress
    iam:CreateServiceLinkedRole
    iam:GetRole
    iam:SimulatePrincipalPolicy
    pricing:GetProducts
    servicequotas:GetServiceQuota
    servicequotas:ListServiceQuotas
    servicequotas:RequestServiceQuotaIncrease
    ssm:GetParameters
    """.split()
)


def test_the_document_of_reaping_lacks_nothing_but_what_launches_alone_need():
    assert actions(document("aws-launch")) - actions(document("aws-reap")) == LAUNCHING_ALONE


@pytest.mark.soak
def test_reaping_needs_its_document_and_no_more(user):
    user.do(*UP, "--name", "fox", "--gpu", "t4")
    user.do(*UP, "--name", "elk", "--gpu", "t4", "--spot")
    user.do(*UP, "--name", "hen", "--gpu", "t4", "--spot")
    user.do(*UP, "--name", "owl", "--gpu", "t4", "--spot", "--persistent")
    user.do(*UP, "--name", "ant", "--gpu", "t4", "--nodes", "2", "--engine", "none")
    with user.under("aws-reap") as judge:
        user.over("fox")
        user.do("reap", "--nightly")
        assert user.server.instance(user.id_of("fox")).state == "stopped"
        for name in ("elk", "owl"):
            user.do("stop", name, "--yes")
        user.do("extend", "hen", "80h", "--yes")
        user.sweep()
        user.do("down", "--all", "--yes")
        left_behind(user)
        user.ask_for_regions()
        user.do("ls", "--refresh")
    assert unused(judge, "aws-reap") == ([], [])


@pytest.mark.soak
def test_a_watcher_of_jobs_needs_its_document_and_no_more(user):
    """It launches, starts, stops, parks and ends machines of its own ledger, with timers and a volume that is there."""
    user.do(*UP, "--name", "hen", "--gpu", "t4", "--volume", "data:20")
    user.do("down", "hen", "--yes")
    with user.unseen():
        ec2 = boto3.client("ec2", region_name="us-east-1")
        ec2.delete_key_pair(KeyName=ec2.describe_key_pairs()["KeyPairs"][0]["KeyName"])
        (group,) = [one for one in ec2.describe_security_groups()["SecurityGroups"] if one.get("Tags")]
        ec2.delete_security_group(GroupId=group["GroupId"])
    with user.under("aws-watch", user.ledger()) as judge:
        user.do(*UP, "--name", "fox", "--gpu", "t4", "--volume", "data")
        user.sweep()
        user.do("extend", "fox", "80h", "--yes")
        user.do("allow", "fox", "--from", "198.51.100.8/32")
        user.do("allow", "fox", "--from", "198.51.100.7/32")
        for verb in ("stop", "start", "down"):  # one with results is started again for them
            user.do(verb, "fox", "--yes")
        for name, ends in (("elk", ("stop", "start", "down")), ("bee", ("down",))):
            user.do(*UP, "--name", name, "--gpu", "t4", "--spot")
            for verb in ends:
                user.do(verb, name, "--yes")
        user.do(*UP, "--name", "owl", "--gpu", "t4", "--spot", "--persistent")
        user.do("stop", "owl", "--yes")
        user.do("down", "owl", "--yes")
        user.do(*UP, "--name", "ant", "--gpu", "t4", "--nodes", "2", "--engine", "none")
        user.do("down", "--all", "--yes")
        user.chooses_a_zone()
        look(user)
    assert unused(judge, "aws-watch") == ([], [])


def test_a_watcher_of_another_ledger_may_neither_launch_nor_end(user):
    user.do(*UP, "--name", "fox", "--gpu", "t4")
    (one,) = user.server.instances()
    judge = Judge(document("aws-watch", "another"))
    for number, action in enumerate(("StopInstances", "TerminateInstances"), 1):
        judge.see(Call(number, "ec2", action, "us-east-1", {"InstanceIds": [one.id]}, ""))
    (launch,) = [call for call in user.server.calls if call.action == "RunInstances"]
    judge.see(launch)
    refused = {fault.partition(" ")[0] for fault in judge.faults}
    assert refused == {"ec2:StopInstances", "ec2:TerminateInstances", "ec2:RunInstances", "ec2:CreateTags"}


# What a watcher lacks: it makes no disk, image or rule of a network, asks for no quota, and runs no doctor.
NOT_OF_A_WATCHER = set(
    """
    ec2:CreateImage
    ec2:CreateVolume
    ec2:DeleteKeyPair
    ec2:DeleteNetworkInterface
    ec2:ReleaseAddress
    ec2:UpdateSecurityGroupRuleDescriptionsIngress
    iam:GetRole
    iam:SimulatePrincipalPolicy
    servicequotas:RequestServiceQuotaIncrease
    """.split()
)


def test_a_watcher_may_what_launching_does_but_for_what_is_listed():
    assert actions(document("aws-launch")) ^ actions(document("aws-watch")) == NOT_OF_A_WATCHER


def test_init_needs_its_document_and_no_more(user):
    statement = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
    nobody_of_ours = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    config = user.home / "config.toml"
    config.write_text(
        config.read_text().replace('timer_role = "arn:aws:iam::123456789012:role/made-before"\n', "")
    )  # it may read its own alone
    with user.under("aws-init") as judge:
        user.do("init", "aws", "--budget", "300", "--email", "ada@example.org", "--yes")
        with user.unseen():
            iam = boto3.client("iam", region_name="us-east-1")
            for name in ("cloudgpu-machine", "cloudgpu-timer"):
                iam.update_assume_role_policy(RoleName=name, PolicyDocument=nobody_of_ours)
        user.do("init", "aws", "--yes")
        user.ask_for_regions()
        user.do("init", "aws", "--remove", "--yes")
    assert unused(judge, "aws-init") == ([], [])


TERMINATE = {"Sid": "It", "Action": "ec2:TerminateInstances", "Resource": "arn:aws:ec2:*:*:instance/*"}
NOT_ENOUGH = {
    "another action": {"Action": "ec2:StopInstances", "Resource": "*"},
    "another kind of thing": {"Resource": "arn:aws:ec2:*:*:volume/*"},
    "another value of a tag": {"Condition": {"StringLike": {"aws:ResourceTag/cloudgpu-id": "?"}}},
    "no such tag": {"Condition": {"StringEquals": {"aws:ResourceTag/not-there": "x"}}},
}


def test_the_judge_refuses_what_a_document_does_not_allow(user):
    user.do(*UP, "--name", "fox", "--gpu", "t4")
    (one,) = user.server.instances()
    call = Call(1, "ec2", "TerminateInstances", "us-east-1", {"InstanceIds": [one.id]}, "")
    for why, more in {**NOT_ENOUGH, "": {}}.items():
        judge = Judge({"Statement": [TERMINATE | more]})
        judge.see(call)
        assert len(judge.faults) == bool(why), why


def test_doctor_asks_for_what_the_document_of_launching_has():
    probed = {probe.action for probe in (*READ_PROBES, *CHANGE_PROBES, *UNTESTED_PROBES)}
    assert probed == actions(document("aws-launch"))


def test_a_document_of_fewer_uses_allows_nothing_that_launching_does_not():
    launching = actions(document("aws-launch"))
    assert actions(document("aws-read")) | actions(document("aws-reap")) <= launching
    assert not {
        one
        for one in actions(document("aws-read"))
        if not one.partition(":")[2].startswith(("D", "G", "L", "Simulate"))
    }


def test_a_machine_may_set_its_own_last_active_tag_and_nothing_else():
    (statement,) = document("aws-machine")["Statement"]
    assert statement["Action"] == "ec2:CreateTags"
    assert statement["Condition"]["ForAllValues:StringEquals"] == {"aws:TagKeys": ["cloudgpu-last-active"]}
    own = statement["Condition"]["ArnLike"]["ec2:SourceInstanceARN"]
    assert own == statement["Resource"].removesuffix("*") + "${ec2:InstanceID}"


@pytest.mark.parametrize("name", NAMES)
def test_a_document_is_one_that_iam_takes(aws, name):  # noqa: F811
    """moto reads the grammar as IAM does; sizes and names of actions are compared here."""
    text = (data_dir("policies") / "permissions" / f"{name}.json").read_text()
    boto3.client("iam", region_name="us-east-1").create_policy(PolicyName=name, PolicyDocument=text)
    assert len(json.dumps(json.loads(text), separators=(",", ":"))) <= LARGEST
    sids = [one["Sid"] for one in json.loads(text)["Statement"]]
    assert len(set(sids)) == len(sids)
    assert [
        one for one in actions(json.loads(text)) - {*NO_CALLS, *PERMISSIONS.values()} if not _is_an_operation(one)
    ] == []


def _is_an_operation(action):
    service, _, name = action.partition(":")
    named = {"servicequotas": "service-quotas"}.get(service, service)
    try:
        return name in boto3.client(named, region_name="us-east-1").meta.service_model.operation_names
    except UnknownServiceError:
        return False
