"""Which AWS account credentials belong to, as STS says it."""

from __future__ import annotations

import pytest

from cloudgpu.core.facts import AccountIdentity
from cloudgpu.errors import ProviderUnavailable
from tests.clouds.aws.plain import client
from tests.providers.aws.accounts import account, quick

OWN = AccountIdentity("aws account", "123456789012", "AWS account 123456789012")


def test_an_account_is_what_sts_says_and_asked_once(aws, tmp_path):
    provider = quick(account(tmp_path))
    assert {provider.identity("us-east-1"), provider.identity("us-west-2"), provider.identity()} == {OWN}
    assert len(aws.called("GetCallerIdentity")) == 1


def test_another_role_of_another_account_is_another_account(aws, tmp_path, monkeypatch):
    role = client("sts").assume_role(RoleArn="arn:aws:iam::222222222222:role/x", RoleSessionName="other")
    for name, key in (("ACCESS_KEY_ID", "AccessKeyId"), ("SECRET_ACCESS_KEY", "SecretAccessKey")):
        monkeypatch.setenv(f"AWS_{name}", role["Credentials"][key])
    monkeypatch.setenv("AWS_SESSION_TOKEN", role["Credentials"]["SessionToken"])
    assert account(tmp_path).identity().id == "222222222222"


def test_while_sts_does_not_answer_it_is_what_it_said_of_the_very_same_key(aws, tmp_path, monkeypatch):
    quick(account(tmp_path)).identity()
    aws.faults.add("GetCallerIdentity", error="NoSuchWord", times=99)
    assert quick(account(tmp_path)).identity() == OWN
    with pytest.raises(ProviderUnavailable):
        quick(account(tmp_path / "another home")).identity()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAMODELOFAWS000001")
    with pytest.raises(ProviderUnavailable):
        account(tmp_path).identity()
