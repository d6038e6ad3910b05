"""What goes wrong at AWS, by the command line on our model of it: exit code, one sentence, nothing left running."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import timedelta

import pytest

from cloudgpu.control.outage import opening as sessions
from cloudgpu.core.model.offers import Market
from tests.cli.aws_line import CONFIG, REGIONS, Line
from tests.clouds.aws.checks import zone_of
from tests.clouds.aws.ec2 import backend
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.aws.plain import client
from tests.faults.disk import make_disk
from tests.faults.said import check_document, check_said
from tests.providers.aws.accounts import impatient

__all__ = ["aws", "aws_process"]
UP = "up --yes --no-wait --ssh-from 203.0.113.7 --gpu v100 --spot"
ZONES = {"us-east-1b", "us-west-2a"}  # where our model offers p3.2xlarge
ROOMY_K = 700
FULL = "InsufficientInstanceCapacity"


@pytest.fixture
def line(own_home, capsys, aws, monkeypatch):
    impatient(monkeypatch)
    return Line(own_home, capsys, aws)


@pytest.fixture
def ahead(monkeypatch):
    """Let every session's clock run ahead by what it waits: nothing is slept away."""
    passed = [timedelta()]

    def pause(seconds):
        passed[0] += timedelta(seconds=seconds)

    def opened(*args, real=sessions.open_session, **more):
        found = real(*args, clock=lambda: sessions.utc_now() + passed[0], **more)
        found.pause = pause
        return found

    monkeypatch.setattr(sessions, "open_session", opened)
    return passed


def refused(said, code):
    """Check that this was refused in one sentence with a way out; return the error."""
    assert len(said.err.split("Traceback")) == 1
    error = check_document(said, code)
    assert re.fullmatch(r"[^\n]+[.?]", error["message"]), error
    return error


def nothing_runs(line):
    """Nothing that is billed was left, and the ledger has no machine, nor one that is not settled."""
    assert line.aws.instances(live=True) == []
    for region in ("us-east-1", "us-west-2"):
        assert client(region=region).describe_volumes()["Volumes"] == []
    assert line("ls -o json").json["machines"] == []


def zones_tried(line):
    return [zone_of(backend(call.region), call.parameters) for call in line.aws.called("RunInstances")]


@pytest.mark.soak
@pytest.mark.parametrize("status", [400, 500])
def test_no_capacity_anywhere_tries_every_zone_once_and_ends_with_4(line, status):
    line.aws.faults.add("RunInstances", error=FULL, status=status, times=99)
    error = refused(line(UP, "--or-on-demand -o json"), 4)
    assert FULL in error["message"]
    assert "None of the 4 offers that fit" in error["message"]
    assert set(zones_tried(line)) == ZONES
    assert len(zones_tried(line)) == 2 * len(ZONES), "each zone once on spot and once on demand"
    nothing_runs(line)


@pytest.mark.soak
def test_no_capacity_in_the_first_zone_is_told_and_the_next_is_launched(line):
    line.aws.faults.add("RunInstances", error=FULL, status=500)
    said = line(UP)
    assert said.code == 0, said.err
    (made,) = line.aws.instances(live=True)
    first, second = zones_tried(line)
    assert (made.availability_zone, first != second) == (second, True)
    assert f"{first}: " in said.err


@pytest.mark.soak
@pytest.mark.parametrize("status", [400, 503])
def test_throttling_is_waited_out(line, ahead, status):
    line.aws.faults.add("RunInstances", error="RequestLimitExceeded", status=status, times=3)
    assert line(UP).code == 0
    assert len(line.aws.called("RunInstances")) == 4
    assert len({call.parameters["ClientToken"] for call in line.aws.called("RunInstances")}) == 1
    assert len(line.aws.instances(live=True)) == 1
    assert ahead[0] > timedelta(seconds=3)


@pytest.mark.soak
def test_throttling_without_end_is_said_and_the_same_up_goes_on(line, ahead):
    fault = line.aws.faults.add("RunInstances", error="RequestLimitExceeded", times=10_000)
    said = line(UP, "-o json")
    error = refused(said, 8)
    told = re.findall(
        r"has not accepted RunInstances in \S+ after (\d+) tr.*\(.+\)\. Trying until [\d:]{8} UTC\.", said.err
    )
    assert told[0] == "1"
    assert 3 <= len(told) <= 8, "once in a while, and not at every try"
    assert "RequestLimitExceeded" in error["message"]
    assert ahead[0] > timedelta(minutes=4), "it gave up at once"
    assert line.aws.instances(live=True) == []
    line.aws.faults.remove(fault)
    assert line(UP).code == 0
    assert len(line.aws.instances()) == 1


@pytest.mark.parametrize(
    ("action", "code"),
    [
        ("DescribeInstanceTypeOfferings", "ExpiredToken"),
        ("RunInstances", "RequestExpired"),
        ("RunInstances", "AuthFailure"),
    ],
)
def test_credentials_that_expire_are_named_and_nothing_was_made(line, action, code):
    line.aws.faults.add(action, error=code, times=99)
    error = refused(line(UP, "-o json"), 6)
    assert "credential" in error["message"] or "clock" in error["message"]
    assert line.aws.environ["AWS_ACCESS_KEY_ID"] not in str(error)
    nothing_runs(line)


def test_without_credentials_nothing_is_sent(line, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    error = refused(line(UP, "-o json"), 6)
    assert "no AWS credentials for account lab" in error["message"]
    assert line.aws.calls == []


@pytest.mark.parametrize("action", ["RunInstances", "CreateSecurityGroup", "ImportKeyPair", "DescribeSpotPriceHistory"])
def test_a_denied_action_is_named_and_nothing_was_made(line, action):
    line.aws.faults.deny(action)
    error = refused(line(UP, "-o json"), 6)
    assert f"ec2:{action}" in error["message"]
    nothing_runs(line)


@pytest.mark.soak
def test_an_end_that_is_denied_is_no_end(line):
    assert line(UP).code == 0
    line.aws.faults.deny("TerminateInstances")
    error = refused(line("down --all --yes -o json"), 6)
    assert "ec2:TerminateInstances" in error["message"]
    assert len(line("ls --refresh -o json").json["machines"]) == len(line.aws.instances(live=True)) == 1
    line.aws.faults.clear()
    assert line("down --all --yes").code == 0
    nothing_runs(line)


def test_a_quota_of_nothing_is_named_with_the_request_that_raises_it(line):
    line.aws.model.quotas[("", "L-7212CCBC")] = 0  # P spot
    error = refused(line(UP, "-o json"), 5)
    assert "L-7212CCBC" in error["message"] + str(error["value"])
    assert re.search(r"cloudgpu quota .*--request", error["next"])
    assert line.aws.called("RunInstances") == []
    nothing_runs(line)


def test_a_quota_of_nothing_is_asked_and_said_once_for_each_region(line):
    line.aws.model.quotas[("", "L-DB2E81BA")] = 0  # G on demand: several types, each in many zones
    said = line(UP.replace("v100 --spot", "t4"))
    assert said.code == 5
    assert [said.err.count(f"(L-DB2E81BA) in {region} allows 0") for region in REGIONS] == [2, 1]  # and the error
    assert len(line.aws.called("GetServiceQuota")) == len(REGIONS)
    nothing_runs(line)


@pytest.mark.parametrize(
    ("market", "code"), [(Market.SPOT, "MaxSpotInstanceCountExceeded"), (None, "VcpuLimitExceeded")]
)
def test_a_quota_that_could_not_be_read_beforehand_is_named_by_the_launch(line, market, code):
    line.aws.faults.deny("GetServiceQuota", service="servicequotas")
    line.aws.faults.add("RunInstances", error=code, times=99)
    error = refused(line(UP if market else UP.replace(" --spot", ""), "-o json"), 5)
    assert code in error["message"]
    assert "cloudgpu quota" in error["next"]
    nothing_runs(line)


@pytest.mark.soak
def test_a_region_that_is_offline_is_named_and_the_others_are_used(line):
    line.aws.faults.offline("us-west-2")
    said = line(UP)
    assert said.code == 0, said.err
    assert "us-west-2 did not answer" in said.err
    (made,) = line.aws.instances(live=True)
    assert made.availability_zone == "us-east-1b"
    listed = line("ls --refresh -o json")
    assert (listed.code, [gap["scope"] for gap in listed.json["unanswered"]]) == (8, ["us-west-2"])


def test_a_region_that_goes_silent_over_a_launch_has_one_machine_when_it_is_back(line, ahead):
    line.aws.on_call = lambda _number, action, phase: _silence(line, action, phase)
    error = refused(line(UP, "--region us-east-1 -o json"), 8)
    assert "same up again" in error["next"]
    line.aws.on_call = None
    line.aws.faults.clear()
    assert line(UP, "--region us-east-1").code == 0
    (made,) = line.aws.instances()
    (known,) = line("ls -o json").json["machines"]
    assert known["id"] in {tag["value"] for tag in made.get_tags()}


def _silence(line, action, phase):
    """Let the reply to the launch be lost, and nothing be heard of its region from then on."""
    if (action, phase) != ("RunInstances", "after"):
        return None
    line.aws.faults.offline("us-east-1")
    return "drop"


@pytest.mark.soak
def test_an_end_in_a_region_that_is_silent_is_not_called_one(line, ahead):
    assert line(UP, "--region us-east-1").code == 0
    line.aws.faults.offline("us-east-1")
    said = line("down --all --yes -o json")
    proof, gap = said.json["failed"]
    assert (said.code, proof["kind"], gap["kind"]) == (9, "stop_unproved", "provider_unavailable")
    assert all(fault["next"] for fault in (proof, gap))
    line.aws.faults.clear()
    assert line("down --all --yes").code == 0
    nothing_runs(line)


@pytest.mark.soak
def test_a_wrong_clock_is_named(line, ahead):
    ahead[0] = timedelta(hours=1)
    line.aws.faults.add("RunInstances", error="AuthFailure", times=99)
    error = refused(line(UP, "-o json"), 6)
    assert "clock of this machine is wrong" in error["message"]
    assert "timedatectl" in error["next"]
    nothing_runs(line)


@pytest.fixture
def disk(aws, tmp_path):
    """A small disk with the settings of one region on it."""
    made = make_disk(tmp_path / "disk")
    text = CONFIG.replace(json.dumps(REGIONS), '["us-east-1"]')
    words = ["sh", "-c", 'mkdir -p "$1" && cat > "$1/config.toml"', "sh", str(made.program.home)]
    subprocess.run([*made.before, *words], input=text.encode(), check=True)
    yield made
    made.close()


@pytest.mark.soak
@pytest.mark.parametrize("kib", [120])
def test_a_launch_on_a_full_disk_leaves_nothing_running(aws, disk, kib):
    disk.leave_free(kib)
    check_said(disk.program(*UP.split()), 2, 8)
    assert aws.instances(live=True) == []
    assert client().describe_volumes()["Volumes"] == []


@pytest.mark.soak
def test_down_on_a_full_disk_ends_what_is_parked_too(aws, disk):
    disk.leave_free(ROOMY_K)
    assert disk.program(*UP.split()).code == 0
    assert disk.program("stop", "--yes").code == 0
    assert len(client().describe_images(Owners=["self"])["Images"]) == 1
    disk.leave_free(0)
    done = disk.program("down", "--all", "--yes")
    assert done.code == 8, done.err
    assert "nothing of it is left" in done.err
    assert "The accounts were not checked for other machines" in done.err
    assert client().describe_images(Owners=["self"])["Images"] == []
    assert client().describe_snapshots(OwnerIds=["self"])["Snapshots"] == []
