"""`cloudgpu quota` on our model of AWS: limits and what is used of them; a request never lowers one."""

from __future__ import annotations

import pytest

import cloudgpu
from tests.cli.aws_line import Line
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.aws.plain import client, launch

__all__ = ["aws", "aws_process"]
P = "L-417A185B"


@pytest.fixture
def line(own_home, capsys, aws):
    return Line(own_home, capsys, aws)


def refused(said, field):
    assert (said.code, said.json["error"]["field"]) == (2, field)
    assert said.json["error"]["next"]
    return said.json["error"]


def test_limits_are_listed_per_region_with_what_is_used(line):
    line.aws.model.quotas["us-west-2", P] = 0.0
    launch(client(), InstanceType="p3.2xlarge", Placement={"AvailabilityZone": "us-east-1b"})
    found = line("quota -o json").json
    limits = {(one["region"], one["code"]): (one["used"], one["limit"]) for one in found["quotas"]}
    assert limits["us-east-1", P] == (8, 64)
    assert limits["us-west-2", P] == (0, 0)
    assert {one["unit"] for one in found["quotas"]} == {"vCPU"}
    assert {one["market"] for one in found["quotas"]} == {"spot", "on_demand"}


def test_a_gpu_names_the_limits_that_count_it_and_how_much(line):
    said = line("quota --gpu v100 --region us-east-1")
    assert f"us-east-1  {P}     0     64  Running On-Demand P instances" in said.out
    assert f"p3.2xlarge on-demand counts 8 of {P}." in said.out
    assert "G and VT" not in said.out
    assert max(map(len, said.out.splitlines())) <= 80
    needs = line("quota --gpu v100 --region us-east-1 -o json").json["needs"]
    assert {(need["market"], need["vcpus"]) for need in needs} == {("on_demand", 8), ("spot", 8)}


def test_regions_that_are_alike_stand_on_one_line(line):
    assert f"us-east-1 +1  {P}" in line("quota --gpu v100").out


def test_a_region_that_does_not_answer_is_named(line):
    line.aws.faults.offline("us-west-2")
    said = line("quota -o json")
    assert said.code == 8
    assert {one["region"] for one in said.json["quotas"]} == {"us-east-1"}
    assert [gap["scope"] for gap in said.json["unanswered"]] == ["us-west-2"]


def test_a_limit_is_asked_for_and_shown_first(line):
    said = line(f"quota --region us-east-1 --request {P}=96 --yes")
    assert said.code == 0
    assert f"Running On-Demand P instances ({P} in us-east-1): 64 vCPU now, 0 used; to be 96" in said.err
    (asked,) = line.aws.model.quota_requests
    assert (asked["QuotaCode"], asked["DesiredValue"]) == (P, 96)
    assert asked["Id"] in said.out


def test_enough_for_a_gpu_is_what_is_used_and_what_it_needs(line):
    line.aws.model.quotas["us-east-1", P] = 8.0
    launch(client(), InstanceType="p3.2xlarge", Placement={"AvailabilityZone": "us-east-1b"})
    found = line("quota --region us-east-1 --request enough --gpu v100 --count 2 --yes -o json").json
    assert (found["code"], found["requested"], found["current"]["limit"]) == (P, 24, 8)
    assert [one["DesiredValue"] for one in line.aws.model.quota_requests] == [24]


def test_the_limit_of_the_other_market_is_another_one(line):
    line.aws.model.quotas["us-east-1", "L-7212CCBC"] = 0.0
    found = line("quota --region us-east-1 --request enough --gpu v100 --spot --yes -o json").json
    assert (found["code"], found["requested"]) == ("L-7212CCBC", 8)


def test_the_command_that_a_too_small_quota_names_raises_it(line):
    line.aws.model.quotas["us-east-1", P] = 0.0
    fault = line("up --gpu v100 --region us-east-1 --ssh-from 203.0.113.7 --yes -o json")
    assert (fault.code, fault.json["error"]["kind"]) == (5, "quota_exceeded")
    command = fault.json["error"]["next"].partition("cloudgpu ")[2]
    assert line(f"{command} --yes").code == 0
    assert [one["DesiredValue"] for one in line.aws.model.quota_requests] == [8]


@pytest.mark.parametrize("words", [f"--request {P}=64", f"--request {P}=8", "--request enough --gpu v100"])
def test_a_limit_is_never_asked_to_be_lower_or_the_same(line, words):
    error = refused(line(f"quota --region us-east-1 {words} --yes -o json"), "--request")
    assert "allows 64 vCPU, of which 0 are used" in error["message"]
    assert line.aws.model.quota_requests == []


def test_nothing_is_asked_without_consent(line):
    error = refused(line(f"quota --region us-east-1 --request {P}=96 -o json"), "--yes")
    assert "in your name" in error["message"]
    assert line.aws.model.quota_requests == []


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (f"--request {P}=96", "--region"),
        ("--region us-east-1 --request 96", "--request"),
        (f"--region us-east-1 --request {P}=-1", "--request"),
        (f"--region us-east-1 --request {P}=9999999", "--request"),
        ("--region us-east-1 --request L-417A185C=96", "--request"),
        ("--region us-east-1 --request enough", "--gpu"),
        ("--region us-east-1 --request enough --gpu v100 --count 0", "--count"),
        (f"--region us-east-1 --request {P}=96 --gpu v100", "--gpu"),
        (f"--region us-east-1 --request {P}=96 --count 2", "--count"),
        ("--region us-easy-1", "--region"),
        ("--gpu hal9000", "--gpu"),
        ("--count 2", "--count"),
        ("--spot", "--spot"),
        ("--provider local", "--provider"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_asked(line, words, field):
    yes = " --yes" if "--request" in words else ""
    refused(line(f"quota {words}{yes} -o json"), field)
    assert line.aws.model.quota_requests == []


def test_a_code_that_aws_has_not_is_refused_by_name(line):
    refused(line("quota --region us-east-1 --request X-1=96 --yes -o json"), "--request")
    assert line.aws.model.quota_requests == []


def test_the_library_says_the_same(line):
    with cloudgpu.connect(home=line.home) as library:
        assert library.advice.quota(gpu="v100") == line("quota --gpu v100 -o json").json
        by_price = [row["region"] for row in library.advice.regions(gpu="v100", spot=True)["regions"]]
        assert by_price == [row["region"] for row in line("regions --gpu v100 --spot -o json").json["regions"]]
        asked = library.advice.request_quota("enough", gpu="v100", count=20, region="us-east-1")
    assert [asked["requested"]] == [one["DesiredValue"] for one in line.aws.model.quota_requests]
