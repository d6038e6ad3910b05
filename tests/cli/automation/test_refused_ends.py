"""An end that a cloud refuses, by the command line on our models: the machine is stopped, and the way out is named."""

from __future__ import annotations

import shlex

import pytest

from tests.cli import aws_line, azure_line, gcp_line
from tests.cli.line import on_time_of
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.aws.plain import client
from tests.clouds.azure.fixtures import azure_arm, azure_process
from tests.clouds.azure.model import DISKS, MACHINES
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.receivers.web import WebReceiver

__all__ = ["aws", "aws_process", "azure_arm", "azure_process", "gcp", "gcp_process"]
UP = "up --yes --no-wait --ssh-from 203.0.113.7 --lease 1h --renew-until 2h --name"
AWS_TYPE, ZONE, SIZE = "--instance-type p3.2xlarge --region us-east-1", "us-central1-a", "Standard_NC4as_T4_v3"


class Aws:
    """What somebody does to a machine at AWS, and what lifts it."""

    launch, config = AWS_TYPE, aws_line.CONFIG
    stopped = "stopped"

    def __init__(self, line):
        self.line, self.server = line, line.aws
        self.ec2 = client(region="us-east-1")

    @property
    def id(self):
        return self.server.instances()[-1].id

    def set(self, **attributes):
        for name, on in attributes.items():
            self.ec2.modify_instance_attribute(InstanceId=self.id, **{name: {"Value": on}})

    def protect(self):
        self.set(DisableApiTermination=True)

    def protect_wholly(self):
        self.set(DisableApiTermination=True, DisableApiStop=True)

    def lift(self):
        self.set(DisableApiTermination=False, DisableApiStop=False)

    def commands(self):
        base = f"aws ec2 modify-instance-attribute --instance-id {self.id}"
        return [f"{base} --no-disable-api-{one} --region us-east-1" for one in ("termination", "stop")]

    def running(self):
        return [one.id for one in self.server.instances() if one.state == "running"]


class Gcp:
    """The same at Google Cloud, where nothing protects from a stop."""

    launch, config = f"--gpu t4 --zone {ZONE}", gcp_line.CONFIG
    stopped = "stopped"

    def __init__(self, line):
        self.line, self.server = line, line.gcp

    @property
    def id(self):
        return self.server.instances()[-1]

    def protect(self):
        self.server.instance(self.id)["deletionProtection"] = True

    def lift(self):
        self.server.instance(self.id)["deletionProtection"] = False

    def commands(self):
        name = self.server.instance(self.id)["name"]
        update = f"gcloud compute instances update {name} --no-deletion-protection"
        return [f"{update} --zone {ZONE} --project cloudgpu-test"]

    def running(self):
        return [one for one in self.server.instances() if self.server.instance(one)["status"] == "RUNNING"]


class Azure:
    """The same at Azure: a lock on the machine's group, which forbids changes or the end alone."""

    launch, config = f"--instance-type {SIZE} --region eastus", azure_line.CONFIG
    stopped = "deallocated"

    def __init__(self, line):
        self.line, self.server = line, line.azure
        self.locks = []

    @property
    def id(self):
        return self.server.instances()[-1].id

    def protect(self):
        self.locks = [self.server.protect(self.id)]

    def protect_wholly(self):
        self.locks = [self.server.protect(self.id, level="ReadOnly", on="machine")]

    def lift(self):
        self.server.model.locks.clear()

    def commands(self):
        return [f"az lock delete --ids {one}" for one in self.locks]

    def running(self):
        return [one.id for one in self.server.instances() if one.state == "running"]


@pytest.fixture(params=["aws", "gcp", "azure"])
def cloud(request, own_home, capsys, monkeypatch):
    """A machine named otter at one of the clouds, and what protects it."""
    fixture, line, kind = {
        "aws": ("aws", aws_line, Aws),
        "gcp": ("gcp", gcp_line, Gcp),
        "azure": ("azure_arm", azure_line, Azure),
    }[request.param]
    server = request.getfixturevalue(fixture)
    on_time_of(monkeypatch, server)
    made = kind(line.Line(own_home, capsys, server))
    said = made.line(f"{UP} otter {made.launch}")
    assert said.code == 0, said.err
    return made


def row(cloud, name="otter"):
    return next(one for one in cloud.line("ls --refresh -o json").json["machines"] if one["name"] == name)


@pytest.fixture
def receiver():
    """Whoever is told of alerts."""
    made = WebReceiver()
    yield made
    made.end()


@pytest.mark.soak
def test_a_protected_machine_is_stopped_and_the_command_that_lifts_it_is_named(cloud):
    cloud.protect()
    said = cloud.line("down otter --yes -o json")
    assert said.code == 9, said.err
    error = said.json["error"]
    assert (error["kind"], "It was stopped instead" in error["message"]) == ("end_refused", True)
    assert error["next"] == f"Run: {cloud.commands()[0]}; then: cloudgpu down otter"
    assert "all the same" not in said.err
    assert (row(cloud)["state"], cloud.running()) == (cloud.stopped, [])
    again = cloud.line("down otter --yes")
    assert (again.code, "It is stopped; its disk still costs money." in again.err) == (9, True)
    cloud.lift()
    assert cloud.line("down otter --yes").code == 0
    assert cloud.line("ls --refresh -o json").json["machines"] == []


@pytest.mark.soak
def test_in_down_all_one_that_is_protected_keeps_no_other_one_on(cloud):
    cloud.protect()
    assert cloud.line(f"{UP} finch {cloud.launch}").code == 0
    said = cloud.line("down --all --yes -o json")
    assert said.code == 9, said.err
    assert [one["name"] for one in said.json["terminated"]] == ["finch"]
    (failed,) = said.json["failed"]
    assert shlex.split(failed["next"])[1] in ("aws", "gcloud", "az")
    assert cloud.running() == []


@pytest.mark.soak
@pytest.mark.parametrize("cloud", ["aws", "azure"], indirect=True)
def test_what_may_not_even_be_stopped_runs_on_and_every_pass_says_so_until_it_is_lifted(cloud, receiver):
    cloud.line.config(f'{cloud.config}[alerts]\nto = ["json://{receiver.place}/"]\n')
    cloud.protect_wholly()
    said = cloud.line("down otter --yes")
    assert (said.code, "It cannot be stopped either, so it runs on and is billed" in said.err) == (9, True)
    assert f"Run: {' && '.join(cloud.commands())}; then: cloudgpu down otter" in said.err
    cloud.server.advance(3 * 3600)
    for _ in range(2):
        said = cloud.line("reap")
        assert said.code == 9, said.err
        assert cloud.commands()[-1] in " ".join(said.err.split())
    told = " ".join(text for _, text in receiver.texts)
    assert ("otter cannot be stopped: something protects it" in told, cloud.commands()[-1] in told) == (True, True)
    assert len(receiver.texts) < 3, "it is told once, and not by every pass"
    assert cloud.line("stop otter --yes").code == 9
    cloud.lift()
    assert cloud.line("reap").code == 0
    assert (row(cloud)["state"], cloud.running()) == (cloud.stopped, [])
    assert cloud.line("reap").code == 0


@pytest.mark.soak
@pytest.mark.parametrize("cloud", ["aws"], indirect=True)
def test_in_a_pass_one_that_may_not_be_stopped_keeps_no_other_of_its_region_on(cloud):
    cloud.protect_wholly()
    protected = cloud.id
    for name in ("finch", "hare", "lynx"):
        assert cloud.line(f"{UP} {name} {cloud.launch}").code == 0
    cloud.server.advance(3 * 3600)
    said = cloud.line("reap")
    assert (said.code, cloud.running()) == (9, [protected]), said.err


@pytest.mark.parametrize("cloud", ["azure"], indirect=True)
def test_a_disk_that_a_lock_keeps_is_named_by_a_cleaning_with_the_way_out(cloud):
    cloud.protect()
    group = cloud.id.rpartition("/")[2]
    with cloud.server.lock:
        disk = next(one for one in cloud.server.model.of_kind(MACHINES, group))
        cloud.server.model.drop(disk.id)
        for one in cloud.server.model.of_kind(DISKS, group):
            one.body.pop("managedBy", None)
    cloud.server.advance(86_400)
    cloud.line("ls --refresh")
    said = cloud.line("orphans --clean --yes")
    assert (said.code, cloud.commands()[0] in " ".join(said.err.split())) == (9, True), said.out + said.err
