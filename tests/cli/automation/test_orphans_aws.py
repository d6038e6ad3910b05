"""What launches leave at AWS: shown with its price, launch and age, removed when asked; on our model of AWS."""

from __future__ import annotations

import re
from collections import Counter
from datetime import timedelta

import pytest

from cloudgpu.control.outage import opening as sessions
from tests.cli.aws_line import CONFIG, REGIONS, Line
from tests.clouds.aws.ec2 import backend
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.aws.plain import client, role_of_timers
from tests.providers.aws.accounts import impatient

__all__ = ["aws", "aws_process"]
UP = "up --yes --no-wait --ssh-from 203.0.113.7 --name otter --gpu v100"


class Later(Line):
    """The command line, on a clock that runs ahead of this machine's by as much as the model's does."""

    def __init__(self, home, capsys, aws, monkeypatch):
        super().__init__(home, capsys, aws)
        self._ahead, opened = timedelta(), sessions.open_session

        def later(environ, **more):
            made = opened(environ, clock=lambda: sessions.utc_now() + self._ahead, **more)
            made.pause = lambda _seconds: None
            return made

        monkeypatch.setattr(sessions, "open_session", later)

    def later(self, **span):
        self._ahead += timedelta(**span)
        self.aws.advance(timedelta(**span).total_seconds())

    def ledger(self):
        return sessions.open_session({"CLOUDGPU_HOME": str(self.home)}).ledger.id


@pytest.fixture
def line(own_home, capsys, aws, monkeypatch):
    impatient(monkeypatch)
    return Later(own_home, capsys, aws, monkeypatch)


def left():
    """All that there is in both regions, by kind."""
    found = Counter()
    for region in REGIONS:
        ec2 = client(region=region)
        found["disk"] += len(ec2.describe_volumes()["Volumes"])
        found["image"] += len(ec2.describe_images(Owners=["self"])["Images"])
        found["snapshot"] += len(ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"])
        found["address"] += len(ec2.describe_addresses()["Addresses"])
        found["key_pair"] += len(ec2.describe_key_pairs()["KeyPairs"])
        groups = ec2.describe_security_groups()["SecurityGroups"]
        found["security_group"] += sum(one["GroupName"].startswith("cloudgpu-") for one in groups)
    return +found


def interrupted(line):
    """A spot machine that EC2 took two days ago."""
    assert line(UP, "--spot").code == 0
    line.aws.interrupt(line.aws.instances(live=True)[0].id)
    assert line("ls --refresh").code == 0
    line.later(days=2)


def tagged(line, kind, **more):
    tags = {"cloudgpu-ledger": line.ledger(), **more}
    return [{"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}]


@pytest.mark.soak
def test_what_a_taken_machine_left_is_shown_with_what_it_costs_and_removed(line):
    interrupted(line)
    shown = line("orphans")
    assert shown.code == 0, shown.err
    assert re.search(r"disk +us-east-1/vol-\w+ +\$5\.12 +otter +2d ago", shown.out), shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    spared = line("orphans --clean --yes")
    assert (spared.code, left()) == (0, {"disk": 1}), spared.err
    assert "cloudgpu start otter brings it back" in " ".join(spared.out.split())
    shown = line("orphans --older-than 1d")
    assert "cloudgpu start otter" in shown.out
    assert "the same with --clean ends $5.12 of that" in " ".join(shown.out.split())
    cleaned = line("orphans --clean --older-than 1d --yes")
    assert (cleaned.code, left()) == (0, {}), cleaned.err
    assert re.search(r"Removed: disk us-east-1/vol-\w+ \(\$5\.12\)", cleaned.out), cleaned.out
    assert line("orphans").out == "No orphaned resources.\nQueried: lab (aws), local.\n"
    assert "orphaned disk" in line("show otter --history").out
    assert line("cost --verify").code == 0


@pytest.mark.soak
def test_an_image_is_made_first_and_its_price_is_said_before(line):
    interrupted(line)
    unasked = line("orphans --clean --snapshot")  # nobody said yes
    assert (unasked.code, "--yes" in unasked.err) == (2, True), unasked.err
    assert "To be removed, $5.12 a month" in unasked.err
    assert "at most $3.20 a month" in " ".join(unasked.err.split()), unasked.err
    assert set(left()) == {"disk", "key_pair", "security_group"}
    done = line("orphans --clean --snapshot --yes -o json")
    assert (done.code, left()) == (0, {"image": 1, "snapshot": 1}), done.err
    (image,) = [one["image"] for one in done.json["removed"] if one["kind"] == "disk"]
    assert image["usd_per_month"] == "3.2"
    assert image["name"] in line("image ls").out
    line.later(days=30)
    stays = line("orphans --clean --yes -o json").json["orphans"]
    assert [(one["name"], one["stay_reason"]) for one in stays] == [(image["name"], "on purpose")]


def test_a_survey_costs_ten_calls_a_region_and_ls_no_more_than_it_did(line, aws):
    assert line("ls --refresh").code == 0
    begun = len(aws.calls)
    assert line("orphans").code == 0
    made = Counter((call.action, call.region) for call in aws.calls[begun:])
    wanted = ["Addresses", "Images", "Instances", "KeyPairs", "NetworkInterfaces", "PlacementGroups"]
    wanted += ["SecurityGroups", "Snapshots", "SpotInstanceRequests", "Volumes"]
    whose = {("GetCallerIdentity", REGIONS[0]): 1}  # what is there is judged by the account's number
    assert made == {(f"Describe{what}", region): 1 for what in wanted for region in REGIONS} | whose
    begun = len(aws.calls)
    line("ls --refresh")
    assert len(aws.calls) - begun == 4 * len(REGIONS) + 1


@pytest.mark.soak
def test_a_silent_region_is_named_and_the_other_one_cleaned(line, aws):
    assert line("ls --refresh").code == 0
    for region in REGIONS:
        client(region=region).allocate_address(Domain="vpc", TagSpecifications=tagged(line, "elastic-ip"))
    fault = aws.faults.offline("us-west-2", status=503)
    done = line("orphans --clean --yes")
    assert (done.code, "us-west-2 did not answer" in done.err) == (8, True), done.err
    assert "$3.65" in done.out  # 0.005 an hour, as AWS bills every public IPv4 address
    aws.faults.remove(fault)
    denied = aws.faults.deny("DescribeAddresses")  # as under an older permission document
    done = line("orphans")
    assert (done.code, "ec2:DescribeAddresses" in done.err) == (8, True), done.err
    aws.faults.remove(denied)
    assert left() == {"address": 1}
    assert line("orphans --region us-east-1").out == "No orphaned resources.\nQueried: lab (aws), local.\n"
    assert (line("orphans --clean --yes").code, left()) == (0, {})


@pytest.mark.soak
def test_a_group_stays_while_an_interface_lingers_in_it_and_keeps_none_of_the_others(line):
    interrupted(line)
    ec2 = client()
    (group,) = [one for one in ec2.describe_security_groups()["SecurityGroups"] if one["GroupName"][:9] == "cloudgpu-"]
    inside = {"SubnetId": ec2.describe_subnets()["Subnets"][0]["SubnetId"], "Groups": [group["GroupId"]]}
    lingering = ec2.create_network_interface(**inside)["NetworkInterface"]["NetworkInterfaceId"]
    done = line("orphans --clean --older-than 1d --yes")
    assert (done.code, left()) == (0, {"security_group": 1}), done.err
    assert "dependent object" in " ".join(done.out.split()), done.out
    ec2.delete_network_interface(NetworkInterfaceId=lingering)
    ec2.create_network_interface(**inside, TagSpecifications=tagged(line, "network-interface"))  # of ours, and unused
    for gone in ("interface", "security_group"):
        done = line("orphans --clean --yes -o json")
        assert [one["kind"] for one in done.json["removed"]] == [gone]
    assert left() == {}


@pytest.mark.soak
def test_a_request_that_would_launch_the_next_machine_is_cancelled(line, aws):
    assert line("ls --refresh").code == 0
    specs = tagged(line, "spot-instances-request", **{"cloudgpu-id": "cg-9"})
    market = {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "persistent"}}
    ec2 = client()
    image = ec2.describe_images()["Images"][0]["ImageId"]
    made = ec2.run_instances(
        ImageId=image, InstanceType="t3.small", MinCount=1, MaxCount=1, InstanceMarketOptions=market,
        TagSpecifications=specs,
    )  # fmt: skip
    (request,) = backend("us-east-1").spot_instance_requests.values()
    request.relaunch = None  # there is no capacity for the next machine yet
    assert line("orphans").out == "No orphaned resources.\nQueried: lab (aws), local.\n"
    ec2.terminate_instances(InstanceIds=[made["Instances"][0]["InstanceId"]])
    line.later(hours=1)
    assert "it can launch another" in " ".join(line("orphans").out.split())
    assert line("orphans --clean --yes").code == 0
    assert request.state == "cancelled"


@pytest.mark.soak
def test_a_timer_of_a_machine_that_others_ended_is_dropped(line, aws):
    line.config(f'{CONFIG}timer_role = "{role_of_timers()}"\n')
    assert line(UP).code == 0
    (machine,) = aws.instances(live=True)
    scheduler = client("scheduler", region=machine.region_name)
    client(region=machine.region_name).terminate_instances(InstanceIds=[machine.id])
    line("ls --refresh")
    assert len(scheduler.list_schedules()["Schedules"]) == 1
    line.later(hours=1)
    (timer,) = [one for one in line("orphans -o json").json["orphans"] if one["kind"] == "timer"]
    assert (timer["launch"]["name"], timer["usd_per_month"], timer["do"]) == ("otter", "0", "remove")
    assert line("orphans --clean --yes").code == 0
    assert scheduler.list_schedules()["Schedules"] == []


@pytest.mark.soak
def test_a_stopped_machine_is_shown_with_what_a_month_of_its_disk_costs(line, aws):
    assert line("up --gpu t4 --name heron --ssh-from 203.0.113.7 --yes --no-wait").code == 0
    line("ls --refresh")
    assert line("stop heron --yes").code == 0
    line.later(days=2)
    (machine,) = line("orphans -o json").json["orphans"]
    assert (machine["kind"], machine["usd_per_month"], machine["do"]) == ("stopped_machine", "5.12", "stay")
    assert machine["next"] == "cloudgpu down heron"
    assert line("orphans --clean --yes").code == 0
    assert len(aws.instances(live=True)) == 1
    asked = line("orphans --clean --stopped-older-than 1d")
    assert asked.code == 2
    assert "heron" in asked.err
    assert line("orphans --clean --stopped-older-than 1d --yes").code == 0
    assert aws.instances(live=True) == []


BAD = {
    "--older-than soon": "--older-than",
    "--clean --stopped-older-than 0d": "--stopped-older-than",
    "--region us-eats-1": "--region",
    "--snapshot": "--snapshot",
    "--stopped-older-than 3d": "--stopped-older-than",
}


@pytest.mark.parametrize(("words", "field"), BAD.items())
def test_what_cannot_be_meant_is_refused(line, words, field):
    said = line(f"orphans {words} -o json")
    assert (said.code, said.json["error"]["field"]) == (2, field)
    assert said.json["error"]["next"]
