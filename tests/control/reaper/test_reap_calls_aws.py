"""What a pass asks of AWS, call by call, on our model of it: 200 machines in five regions.

The model counts; it never was AWS. The floor is one DescribeInstances per region and 1000 machines, and one
StopInstances per region that has one to stop; a second look and a proof are one DescribeInstances per region each.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from math import ceil, log2

import pytest

from cloudgpu.access.ssh import client_files
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.core.values.times import epoch_text
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.aws.plain import client, image
from tests.clouds.aws.quotas import QUOTAS
from tests.control.agents import Agents, patient

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
        sync_all(self.session)  # it makes the ledger, whose id the tags bear
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
        return epoch_text(self.now() + timedelta(**span))

    def tag(self, id_, **tags):
        """Set tags as the machine, or its launch, would."""
        pairs = {f"cloudgpu-{key.replace('_', '-')}": value for key, value in tags.items()}
        self.machines[id_].add_tags(pairs)

    def few(self, each):
        """Return so many machines of each region."""
        by_region: dict[str, list[str]] = {}
        for id_ in self.machines:
            by_region.setdefault(self.region(id_), []).append(id_)
        return [id_ for ids in by_region.values() for id_ in ids[:each]]

    def pass_(self, **wish):
        """Make a pass; return what it did, and how often each action was called in each region."""
        begun = len(self.aws.calls)
        found = reap(self.session, ReapOptions(**wish))
        return found, Counter((call.action, call.region) for call in self.aws.calls[begun:])

    def region(self, id_):
        return self.machines[id_].ec2_backend.region_name

    def states(self, ids):
        return {self.machines[one].state for one in ids}


@pytest.fixture
def account(own_home, aws, monkeypatch):
    patient(monkeypatch)
    return Account(own_home, aws)


def per_region(**times):
    return Counter({(action, region): number for action, number in times.items() for region in REGIONS})


@pytest.mark.soak
def test_a_dry_run_is_5_calls_and_a_stop_10_with_a_look_and_a_proof_per_region(account, aws, own_home, tmp_path):
    """By tag and age, then by the last-active tag, then with one bad id: 200 machines are dear to make."""
    sync_all(account.session)  # it takes them up
    over = by_tag_and_age(account)
    quiet = by_last_active(account, aws, own_home, tmp_path, account.machines.keys() - over)
    with_one_bad_id(account, account.machines.keys() - over - quiet)


FLOOR = {"DescribeInstances": 1 + 1 + 1, "StopInstances": 1}  # the look, the second look and the proof


def by_tag_and_age(account):
    over = set(account.few(each=8))
    for one in over:
        account.tag(one, renew_until=account.later(minutes=-1), expires=account.later(minutes=-1))
    found, made = account.pass_(dry_run=True)
    assert (made, found.decided) == (per_region(DescribeInstances=1), {"keep": 160, "stop": 40})
    found, made = account.pass_()
    assert made == per_region(**FLOOR)
    assert {one.machine for one in found.ended} == over
    assert account.states(over) == {"stopped"}
    assert account.states(account.machines.keys() - over) == {"running"}
    assert found.exit_code == 0
    return over


def by_last_active(account, aws, own_home, tmp_path, running):
    """One machine a region has been quiet for long, and says so over SSH; the others say that they are in use."""
    quiet = set(account.few(each=9)) & running
    hosts = [account.machines[one].public_ip for one in quiet]
    agents = Agents(tmp_path / "agents", own_home / "keys", user="cloudgpu", hosts=hosts, port=aws.ssh_port)
    aws.advance(2 * 3600)
    for one in quiet:
        client_files.pin(account.session.home.known_hosts, one, agents.host_key.public_line)
        account.tag(one, last_active=account.later(minutes=-70))
    try:
        in_use(account, agents, running - quiet)
        found, made = account.pass_()
        assert (made, len(found.warned)) == (per_region(DescribeInstances=1), len(REGIONS))
        aws.advance(600)
        in_use(account, agents, running - quiet)
        found, made = account.pass_()
    finally:
        agents.end()
    assert made == per_region(**FLOOR)
    assert {one.machine for one in found.ended} == quiet
    assert account.states(running - quiet) == {"running"}
    return quiet


def with_one_bad_id(account, running):
    """Of 31 machines of one region that are over, one is ended by somebody else while the stop is on its way."""
    over = sorted(one for one in running if account.region(one) == "us-east-1")
    for one in over:
        account.tag(one, renew_until=account.later(minutes=-1), expires=account.later(minutes=-1))
    end_when_asked(account, over[13])
    found, made = account.pass_()
    here = Counter({(action, "us-east-1"): times for action, times in FLOOR.items()})
    elsewhere = Counter({("DescribeInstances", region): 1 for region in REGIONS if region != "us-east-1"})
    more = made - here - elsewhere - Counter({("TerminateInstances", "us-east-1"): 1})
    assert set(more) == {("StopInstances", "us-east-1")}
    assert more.total() <= 2 * ceil(log2(len(over)))
    assert {one.machine for one in found.ended} == set(over)
    assert account.states(one for one in over if one != over[13]) == {"stopped"}


def in_use(account, agents, busy):
    """Let the busy ones say that they are in use, and the others show nothing for two hours."""
    agents.says(account.now())
    for one in busy:
        account.tag(one, last_active=account.later(minutes=-5))


def end_when_asked(account, id_):
    """Let this machine be ended by somebody else just before the first stop arrives."""

    def ended(_number, action, phase):
        if action == "StopInstances" and phase == "before":
            account.aws.on_call = None
            client(region=account.region(id_)).terminate_instances(InstanceIds=[account.machines[id_].id])

    account.aws.on_call = ended
