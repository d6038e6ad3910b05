"""Limits: the right code for family and market, read and raised, and a machine that does not fit is refused."""

from __future__ import annotations

import pytest

from cloudgpu.catalog import instance_types, quota_of
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import AuthFailed, InvalidRequest, QuotaExceeded
from cloudgpu.providers.aws.market.quotas import check
from tests.clouds.aws.quotas import code_of
from tests.providers.aws.accounts import account, calls, machine

P_ON_DEMAND, P_SPOT, P5_SPOT, G_ON_DEMAND = "L-417A185B", "L-7212CCBC", "L-C4BD4855", "L-DB2E81BA"


@pytest.fixture
def provider(aws, tmp_path):
    return account(tmp_path)


def checked(provider, name, market, vcpus):
    return check(provider._aws, "us-east-1", name, market, vcpus)


@pytest.mark.parametrize("market", list(Market))
def test_every_type_counts_against_the_quota_that_our_model_of_aws_counts(market):
    for one in instance_types("aws"):
        assert quota_of("aws", one.name, market).code == code_of(one.name, market.replace("_", "-"))


def test_a_limit_that_is_large_enough_says_nothing_and_costs_one_call(aws, provider):
    with calls(aws) as sent:
        assert checked(provider, "p3.2xlarge", Market.SPOT, 8) is None
    assert sent == [("GetServiceQuota", "us-east-1")]


@pytest.mark.parametrize(
    ("name", "market", "code"),
    [
        ("p3.2xlarge", Market.ON_DEMAND, P_ON_DEMAND),
        ("p3.2xlarge", Market.SPOT, P_SPOT),
        ("p5.48xlarge", Market.SPOT, P5_SPOT),
        ("g4dn.xlarge", Market.ON_DEMAND, G_ON_DEMAND),
    ],
)
def test_a_quota_of_0_is_named_with_the_command_that_raises_it(aws, provider, name, market, code):
    aws.model.quotas[("us-east-1", code)] = 0
    with pytest.raises(QuotaExceeded, match=f"{code}.*allows 0 vCPUs, and {name} needs 8") as refused:
        checked(provider, name, market, 8)
    assert refused.value.next == f"Run: cloudgpu quota --provider aws --region us-east-1 --request {code}=8"


def test_a_quota_that_is_just_enough_is_enough(aws, provider):
    aws.model.quotas[("", P_SPOT)] = 8
    assert checked(provider, "p3.2xlarge", Market.SPOT, 8) is None
    with pytest.raises(QuotaExceeded):
        checked(provider, "p3.8xlarge", Market.SPOT, 32)


def test_a_quota_that_may_not_be_read_is_a_remark_and_no_obstacle(aws, provider):
    aws.faults.deny("GetServiceQuota", service="servicequotas")
    remark = checked(provider, "p3.2xlarge", Market.SPOT, 8)
    assert P_SPOT in remark
    assert "servicequotas:GetServiceQuota" in remark


def test_a_type_that_no_known_quota_counts_is_a_remark(aws, provider):
    assert "not known which quota" in checked(provider, "mac1.metal", Market.ON_DEMAND, 12)
    assert aws.calls == []


def test_the_limits_are_shown_with_what_runs(aws, provider):
    machine()
    machine(market=Market.SPOT, InstanceType="g4dn.2xlarge")
    machine(InstanceType="t3.small")
    with calls(aws) as sent:
        found = {one.code: (one.limit, one.used) for one in provider.quotas("us-east-1")}
    assert sorted(action for action, _ in sent) == ["DescribeInstances", "ListServiceQuotas"]
    assert found == {
        P_ON_DEMAND: (64, 0),
        P_SPOT: (64, 0),
        P5_SPOT: (64, 0),
        G_ON_DEMAND: (64, 4),
        "L-3819A6DF": (64, 8),
    }


def test_a_region_that_is_none_has_no_limits(aws, provider):
    with pytest.raises(InvalidRequest) as refused:
        provider.quotas("us-esat-1")
    assert refused.value.field == "--region"


def test_a_higher_limit_is_asked_for_and_only_once(aws, provider):
    assert provider.request_quota("us-east-1", P_SPOT, 128)
    (made,) = aws.model.quota_requests
    assert (made["QuotaCode"], made["DesiredValue"]) == (P_SPOT, 128)
    with pytest.raises(InvalidRequest, match="already open"):
        provider.request_quota("us-east-1", P_SPOT, 128)


@pytest.mark.parametrize(("code", "limit"), [("L-NONE", 128), (P_SPOT, 8)])
def test_a_request_that_cannot_be_is_refused(aws, provider, code, limit):
    with pytest.raises(InvalidRequest) as refused:
        provider.request_quota("us-east-1", code, limit)
    assert refused.value.value == code
    assert aws.model.quota_requests == []


def test_limits_that_may_not_be_read_name_the_permission(aws, provider):
    aws.faults.deny("ListServiceQuotas", service="servicequotas")
    with pytest.raises(AuthFailed, match="servicequotas:ListServiceQuotas"):
        provider.quotas("us-east-1")


def test_the_page_of_a_quota_names_it_and_its_region(provider):
    found = provider.quota_page("eu-west-1", P_SPOT)
    assert found == f"https://eu-west-1.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/{P_SPOT}"
    for region, code in (("eu-west-1", "L-1/../x"), ("evil.example/", P_SPOT)):
        with pytest.raises(InvalidRequest):
            provider.quota_page(region, code)
