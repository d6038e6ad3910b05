"""Spot placement scores: asked for once in an hour, by zone, and no reason to fail."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import boto3
import pytest
from botocore.exceptions import ClientError

from cloudgpu.core.model.offers import Market, Requirements
from cloudgpu.providers.aws.market.availability import SCORES_VALID_FOR
from tests.providers.aws.accounts import account


@pytest.fixture
def provider(aws, tmp_path):
    return account(tmp_path, regions=["us-east-1", "us-west-2"])


def spot(provider):
    return list(provider.available(Requirements(instance_type="p3.2xlarge", market=Market.SPOT)).items)


def asked(aws):
    return [call.action for call in aws.calls].count("GetSpotPlacementScores")


def test_each_zone_has_the_score_of_its_id(aws, provider):
    items = spot(provider)
    first = items[0]
    aws.model.spot_scores["p3.2xlarge", first.zone] = 8
    found = dict(zip([one.zone for one in items], provider.placement_scores(items), strict=True))
    assert found.pop(first.zone) == 8
    assert set(found.values()) == {3}
    assert asked(aws) == 1


def test_an_answer_is_remembered_for_an_hour(aws, provider, monkeypatch):
    items = spot(provider)
    for _ in range(3):
        provider.placement_scores(items)
    assert asked(aws) == 1
    now = provider._aws.clock()
    monkeypatch.setattr(provider._aws, "clock", lambda: now + SCORES_VALID_FOR + timedelta(seconds=1))
    provider.placement_scores(items)
    assert asked(aws) == 2


@pytest.mark.parametrize("action", ["GetSpotPlacementScores", "DescribeAvailabilityZones"])
def test_an_account_that_may_not_ask_has_no_scores_and_asks_once(aws, provider, action):
    items = spot(provider)
    aws.faults.deny(action)
    for _ in range(2):
        assert provider.placement_scores(items) == [None for _ in items]
    assert asked(aws) == 1


def test_only_spot_items_of_the_first_type_have_one(aws, provider):
    one = spot(provider)[0]
    items = [replace(one, market=Market.ON_DEMAND), one, replace(one, instance_type="g4dn.xlarge")]
    assert provider.placement_scores(items) == [None, 3, None]


@pytest.mark.parametrize(
    "more",
    [
        {"RegionNames": ["us-east-1"] * 11},
        {"RegionNames": ["nowhere-1"]},
        {"MaxResults": 1001},
    ],
)
def test_the_model_refuses_what_ec2_refuses(aws, more):
    words = {"InstanceTypes": ["p3.2xlarge"], "TargetCapacity": 1, **more}
    with pytest.raises(ClientError, match=r"out of range|Invalid region"):
        boto3.client("ec2", region_name="us-east-1").get_spot_placement_scores(**words)
