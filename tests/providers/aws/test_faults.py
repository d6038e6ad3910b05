"""When AWS says no, or nothing, or the credentials are gone: one class, one sentence, over real HTTP."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from cloudgpu.core.model.offers import Requirements
from cloudgpu.errors import AuthFailed, InvalidRequest, MissingExtra, ProviderUnavailable, RateLimited
from cloudgpu.providers.aws.client import ATTEMPTS
from tests.listened import Waits, in_a_part
from tests.providers.aws.accounts import account, impatient, machine


@pytest.fixture
def provider(aws, tmp_path):
    return account(tmp_path)


@pytest.mark.parametrize("status", [503, 400])
def test_throttling_is_waited_out_and_then_said(aws, provider, monkeypatch, status):
    waits = impatient(monkeypatch)
    aws.faults.add("DescribeInstances", error="RequestLimitExceeded", status=status, times=99)
    with pytest.raises(RateLimited, match="RequestLimitExceeded"):
        provider.list()
    assert len(aws.called("DescribeInstances")) == ATTEMPTS
    assert len(waits) == ATTEMPTS - 1


def test_a_read_that_waits_after_throttling_is_not_taken_for_silent(aws, provider, monkeypatch):
    waits = Waits()
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=waits))
    aws.faults.add("DescribeInstances", error="RequestLimitExceeded", times=99)
    with pytest.raises(RateLimited):
        in_a_part(provider.list)
    assert (len(waits.all), waits.given_up) == (ATTEMPTS - 1, [])


def test_throttling_that_ends_is_not_noticed(aws, provider, monkeypatch):
    impatient(monkeypatch)
    made = machine()
    aws.faults.add("DescribeInstances", error="RequestLimitExceeded", times=2)
    assert [one.id for one in provider.list().instances] == [made]


def test_the_users_own_number_of_attempts_holds(aws, provider, monkeypatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    aws.faults.add("DescribeInstances", error="ThrottlingException", times=99)
    with pytest.raises(RateLimited):
        provider.list()
    assert len(aws.called("DescribeInstances")) == 1


@pytest.mark.parametrize(
    ("code", "status", "says"),
    [
        ("ExpiredToken", 400, "have expired"),
        ("InvalidClientTokenId", 403, "are not accepted"),
        ("AuthFailure", 401, "are not accepted"),
        ("SignatureDoesNotMatch", 403, "do not fit together"),
    ],
)
def test_credentials_that_aws_refuses_are_named_and_not_shown(aws, provider, code, status, says):
    aws.faults.add(error=code, status=status, times=99)
    with pytest.raises(AuthFailed, match=says) as refused:
        provider.list()
    assert "AWS_ACCESS_KEY_ID of the environment" in refused.value.message
    assert aws.environ["AWS_ACCESS_KEY_ID"] not in str(refused.value.as_dict())
    assert refused.value.next


def test_missing_credentials_are_said_before_anything_is_sent(aws, provider, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(AuthFailed, match="no AWS credentials for account lab") as refused:
        provider.list()
    assert "aws configure" in refused.value.next
    assert aws.calls == []


def test_half_a_credential_is_said_so(aws, provider, monkeypatch):
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(AuthFailed, match="AWS_SECRET_ACCESS_KEY"):
        provider.list()


def test_a_profile_that_is_not_there_is_named(aws, tmp_path):
    with pytest.raises(AuthFailed, match="profile nobody of account lab") as refused:
        account(tmp_path, profile="nobody").list()
    assert refused.value.field == "profile"


def test_a_denied_action_is_named(aws, provider):
    aws.faults.deny("DescribeInstanceTypeOfferings")
    with pytest.raises(AuthFailed, match="may not do ec2:DescribeInstanceTypeOfferings in us-east-1") as refused:
        provider.available(Requirements(gpu="t4"))
    assert refused.value.value == "ec2:DescribeInstanceTypeOfferings"


def test_a_wrong_clock_is_recognised_by_the_time_of_the_answer(aws, tmp_path):
    wrong = account(tmp_path, clock=lambda: datetime.now(UTC) + timedelta(hours=1))
    aws.faults.add("DescribeInstances", error="AuthFailure")
    with pytest.raises(AuthFailed, match="clock of this machine is wrong") as refused:
        wrong.list()
    assert "timedatectl" in refused.value.next


def test_a_server_that_fails_is_nothing_known(aws, provider, monkeypatch):
    impatient(monkeypatch)
    aws.faults.add("DescribeInstances", error="InternalError", times=99)
    with pytest.raises(ProviderUnavailable) as silent:
        provider.list()
    assert type(silent.value) is ProviderUnavailable


def test_nobody_there_is_nothing_known(aws, provider, monkeypatch):
    impatient(monkeypatch)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(ProviderUnavailable, match="did not answer DescribeInstances"):
        provider.list()


def test_an_endpoint_that_is_none_is_a_setting_to_correct(aws, provider, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "nonsense")
    with pytest.raises(InvalidRequest) as refused:
        provider.list()
    assert (refused.value.field, refused.value.value) == ("AWS_ENDPOINT_URL", "nonsense")


def test_without_the_sdk_the_extra_is_named(aws, provider, monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(MissingExtra) as missing:
        provider.list()
    assert missing.value.next == "Run: pip install 'cloudgpu[aws]'"
