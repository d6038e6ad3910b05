"""What a pass asks of AWS, call by call, on our model of it: 200 machines in five regions.

The model counts; it never was AWS. The floor is one DescribeInstances per region and 1000 machines, and one
StopInstances per region that has one to stop; a second look and a proof are one DescribeInstances per region each.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from math import ceil, log2

import pytest

from cloudgpu.access import known_hosts
from cloudgpu.control.look import look_at_all
from cloudgpu.control.reap import ReapWish, reap
from cloudgpu.control.session import open_session
from cloudgpu.core.times import epoch
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.aws.plain import client, image
from tests.clouds.aws.quotas import QUOTAS
from tests.control.agents import Agents

__all__ = ["aws", "aws_process"]
REGIONS = ["us-east-1", "us-east-2", "us-west-2", "eu-west-1", "eu-central-1"]
EACH = 40
CONFIG = """
provider = "aws"
owner = "ada"
[accounts.lab]
provider = "aws"
regions = {regions}
ssh_port = {port}
"""


class Account:
    """200 machines of one ledger in five regions, and the calls that are made about them."""

    def __init__(self, home, aws):
        self.aws = aws
        aws.model.quotas.update({("", code): 1e6 for code in QUOTAS})
        regions = str(REGIONS).replace("'", '"')
        (home / "config.toml").write_text(CONFIG.format(regions=regions, port=aws.ssh_port))
        self.session = open_session({"CLOUDGPU_HOME": str(home), "USER": "ada"})
        self.session.clock = self.now
        self.session.pause = lambda _seconds: None
        look_at_all(self.session)  # it makes the ledger, whose id the tags bear
        for region in REGIONS:
            asked = {"ImageId": image(region), "InstanceType": "g4dn.xlarge", "MinCount": EACH, "MaxCount": EACH}
            client(region=region).run_instances(**asked)
        self.machines = {f"cg-{number}": one for number, one in enumerate(aws.instances())}
        for id_ in self.machines:
            self.tag(id_, id=id_, ledger=self.session.ledger.id, name=id_, owner="ada", project="lab", policy="default")
            self.tag(id_, key=id_, expires=self.later(hours=8), renew_until=self.later(hours=72))

    def now(self):
        return datetime.now(UTC) + self.aws.model.ahead

    def later(self, **span):
        return epoch(self.now() + timedelta(**span))

    def tag(self, id_, **tags):
        """Set tags as the machine, or its launch, would."""
        pairs = {f"cloudgpu-{key.replace('_', '-')}": value for key, value in tags.items()}
        self.machines[id_].add_tags(pairs)

    def few(self, each):
        """Return so many machines of each region."""
        by_region: dict[str, list[str]] = {}
        for id_, one in self.machines.items():
            by_region.setdefault(one.ec2_backend.region_name, []).append(id_)
        return [id_ for ids in by_region.values() for id_ in ids[:each]]

    def pass_(self, **wish):
        """Make a pass; return what it did, and how often each action was called in each region."""
        begun = len(self.aws.calls)
        found = reap(self.session, ReapWish(**wish))
        return found, Counter((call.action, call.region) for call in self.aws.calls[begun:])

    def states(self, ids):
        return {self.machines[one].state for one in ids}


@pytest.fixture
def account(own_home, aws):
    return Account(own_home, aws)


def per_region(**times):
    return Counter({(action, region): number for action, number in times.items() for region in REGIONS})


def test_by_tag_and_age_a_dry_run_is_5_calls_and_a_stop_10_with_a_look_and_a_proof_per_region(account, aws):
    over = account.few(each=8)
    for one in over:
        account.tag(one, renew_until=account.later(minutes=-1), expires=account.later(minutes=-1))
    look_at_all(account.session)  # it takes them up
    found, made = account.pass_(dry_run=True)
    assert made == per_region(DescribeInstances=1)
    assert found.decided == {"keep": 160, "stop": 40}
    found, made = account.pass_()
    look, second_look, proof = 1, 1, 1
    assert made == per_region(DescribeInstances=look + second_look + proof, StopInstances=1)
    assert {one.machine for one in found.ended} == set(over)
    assert account.states(over) == {"stopped"}
    assert account.states(account.machines.keys() - set(over)) == {"running"}
    assert found.exit_code == 0


def test_with_the_last_active_tag_a_dry_run_is_5_calls_and_a_stop_10_and_one_bad_id_keeps_no_other_running(
    account, aws, own_home, tmp_path
):
    look_at_all(account.session)
    aws.advance(2 * 3600)
    quiet = account.few(each=4)
    busy = account.machines.keys() - set(quiet)
    hosts = [account.machines[one].public_ip for one in quiet]
    agents = Agents(tmp_path / "agents", own_home / "keys", user="cloudgpu", hosts=hosts, port=aws.ssh_port)
    for one in quiet:
        known_hosts.pin(account.session.home.known_hosts, one, agents.host_key.public_line)
        account.tag(one, last_active=account.later(minutes=-70))
    try:
        for_all(account, agents, busy)
        found, made = account.pass_(dry_run=True)
        assert (made, found.decided) == (per_region(DescribeInstances=1), {"keep": 180, "warn": 20})
        found, made = account.pass_()
        assert (made, len(found.warned)) == (per_region(DescribeInstances=1), 20)
        aws.advance(600)
        for_all(account, agents, busy)
        bad = quiet[0]
        end_when_asked(account, bad)
        found, made = account.pass_()
    finally:
        agents.end()
    assert {one.machine for one in found.ended} == set(quiet)
    region = account.machines[bad].ec2_backend.region_name
    more = made - per_region(DescribeInstances=3, StopInstances=1) - Counter({("TerminateInstances", region): 1})
    assert set(more) == {("StopInstances", region)}
    assert more["StopInstances", region] <= 2 * ceil(log2(4))
    assert account.states(quiet[1:]) == {"stopped"}
    assert account.states(busy) == {"running"}


def for_all(account, agents, busy):
    """Let the busy ones say that they are in use, and the others show nothing for two hours."""
    agents.says(account.now())
    for one in busy:
        account.tag(one, last_active=account.later(minutes=-5))


def end_when_asked(account, id_):
    """Let this machine be ended by somebody else just before the first stop arrives."""

    def ended(_number, action, phase):
        if action == "StopInstances" and phase == "before":
            account.aws.on_call = None
            one = account.machines[id_]
            client(region=one.ec2_backend.region_name).terminate_instances(InstanceIds=[one.id])

    account.aws.on_call = ended
