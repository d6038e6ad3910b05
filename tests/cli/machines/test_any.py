"""`--provider any` by the command line, across our models of AWS, Google Cloud and Azure."""

from __future__ import annotations

import pytest

from tests.cli.line import Line, on_time_of
from tests.clouds.aws.faults import FOREVER
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.azure.fixtures import azure_arm, azure_process
from tests.clouds.gcp.fixtures import gcp, gcp_process

__all__ = ["aws", "aws_process", "azure_arm", "azure_process", "gcp", "gcp_process"]
CONFIG = """
provider = "any"
owner = "ada"
address_services = []
[accounts.aws]
regions = ["us-east-1"]
[accounts.azure]
regions = ["eastus"]
[accounts.gcp]
regions = ["us-central1"]
"""
UP = "up --gpu t4 --ssh-from 203.0.113.7 --no-wait --yes -o json"
FULL = {"error": "InsufficientInstanceCapacity", "status": 400}
MADE = {"RunInstances", "VirtualMachines.CreateOrUpdate", "compute.instances.insert"}


class Clouds(Line):
    """The command line, with the models of all three clouds."""

    def __init__(self, home, capsys, aws, gcp, azure_arm):
        super().__init__(home, capsys, gcp, CONFIG)
        self.aws, self.gcp, self.azure = aws, gcp, azure_arm

    def billed(self):
        """Where anything costs money, whatever cloudgpu says of it."""
        there = {"aws": self.aws.instances(live=True), "gcp": self.gcp.billable(), "azure": self.azure.billable()}
        return {cloud for cloud, things in there.items() if things}

    def launches(self):
        """The calls that would have made a machine, by cloud."""
        models = {"aws": self.aws, "gcp": self.gcp, "azure": self.azure}
        return {cloud for cloud, one in models.items() if any(call.action in MADE for call in one.calls)}


@pytest.fixture
def clouds(own_home, capsys, monkeypatch, aws, gcp, azure_arm):
    on_time_of(monkeypatch, gcp)
    return Clouds(own_home, capsys, aws, gcp, azure_arm)


def prices(plan):
    return [(one["account"], float(one["usd_per_hour"])) for one in plan["by_account"]]


@pytest.mark.soak
def test_the_cheapest_of_three_clouds_is_launched_found_again_and_ended(clouds):
    said = clouds(UP)
    assert said.code == 0, said.err
    assert prices(said.json["plan"]) == [("aws", 0.526), ("azure", 0.526), ("gcp", 0.539999)]
    assert (said.json["machine"]["account"], clouds.billed(), clouds.launches()) == ("aws", {"aws"}, {"aws"})
    again = clouds(UP)
    assert (again.json["found"], again.json["machine"]["id"]) == (True, said.json["machine"]["id"])
    assert clouds("down --yes").code == 0
    assert clouds.billed() == set()


@pytest.mark.soak
def test_capacity_is_looked_for_from_cloud_to_cloud_and_nothing_is_left_of_those_without(clouds):
    clouds.aws.faults.add("RunInstances", times=99, **FULL)
    clouds.azure.faults.add("VirtualMachines.CreateOrUpdate", error="SkuNotAvailable", times=99)
    said = clouds(UP)
    assert said.code == 0, said.err
    assert (said.json["machine"]["account"], clouds.launches()) == ("gcp", {"aws", "azure", "gcp"})
    assert clouds.billed() == {"gcp"}
    assert clouds("down --yes").code == 0
    assert clouds.billed() == set()


@pytest.mark.soak
def test_nobody_else_is_asked_to_launch_while_one_cloud_has_not_said_whether_it_has(clouds):
    clouds.aws.faults.lose_reply("RunInstances", times=FOREVER)
    said = clouds(UP)
    assert said.code == 8
    assert clouds.launches() == {"aws"}
    clouds.aws.faults.clear()
    again = clouds(UP)
    assert (again.code, again.json["machine"]["account"]) == (0, "aws")
    assert (clouds.launches(), len(clouds.aws.instances(live=True))) == ({"aws"}, 1)


def test_a_cloud_that_is_down_and_one_without_credentials_are_named_and_passed_over(clouds):
    clouds.aws.faults.add(error="ExpiredToken", times=1_000)
    clouds.azure.faults.offline()
    said = clouds(UP)
    assert (said.code, said.json["machine"]["account"]) == (0, "gcp")
    for account in ("aws", "azure"):
        assert sum(one.startswith(f"passed over: account {account}: ") for one in said.json["plan"]["notes"]) == 1
    assert clouds.launches() == {"gcp"}


def test_a_place_and_a_limit_pass_over_the_clouds_that_are_not_meant(clouds):
    plan = clouds(f"{UP} --dry-run --region us-central1").json["plan"]
    assert (plan["account"], len(plan["by_account"])) == ("gcp", 1)
    assert not [one for one in plan["notes"] if "passed over" in one]
    refused = clouds(f"{UP} --dry-run --max-price 0.10")
    assert (refused.code, refused.json["error"]["field"]) == (4, "--max-price")
    assert clouds.launches() == set()


def test_clouds_need_no_table_where_their_credentials_are_here(clouds):
    clouds.config(
        'owner = "ada"\naddress_services = []\n[accounts.work]\nprovider = "gcp"\nregions = ["us-central1"]\n'
    )
    plan = clouds(f"{UP} --dry-run --provider any --instance-type Standard_NC4as_T4_v3 --region eastus").json["plan"]
    assert plan["account"] == "azure"
    plan = clouds(f"{UP} --dry-run --provider any --region us-central1").json["plan"]
    assert plan["account"] == "work"
