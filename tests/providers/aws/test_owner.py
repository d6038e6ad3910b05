"""Which AWS account credentials belong to, as STS says it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from cloudgpu.core.model.identity import AccountIdentity
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


def test_what_is_remembered_of_a_key_is_an_account_or_nothing(aws, tmp_path, monkeypatch):
    def full(file, *_args, **_more):
        file.touch()
        raise OSError(28, "No space left on device")

    def silent():
        aws.faults.add("GetCallerIdentity", error="NoSuchWord", times=1)
        return quick(account(tmp_path))

    with monkeypatch.context() as disk:
        disk.setattr(Path, "write_text", full)
        assert quick(account(tmp_path)).identity() == OWN
    assert list((tmp_path / "accounts").iterdir()) == []
    quick(account(tmp_path)).identity()
    (file,) = (tmp_path / "accounts").iterdir()
    for broken in (b"", b"None\n", b"\xff"):
        file.write_bytes(broken)
        with pytest.raises(ProviderUnavailable):
            silent().identity()
    quick(account(tmp_path)).identity()
    assert silent().identity() == OWN


def test_an_answer_that_names_no_account_is_none(aws, tmp_path, monkeypatch):
    provider = quick(account(tmp_path))
    sts = SimpleNamespace(get_caller_identity=lambda: {"Account": ""})
    monkeypatch.setattr(provider._aws, "client", lambda *_, **__: sts)
    with pytest.raises(ProviderUnavailable, match="not a number of an account"):
        provider.identity()


def test_accounts_of_old_keys_are_forgotten(aws, tmp_path):
    (tmp_path / "accounts").mkdir()
    for name, days in (("old", 31), ("late", 29)):
        file = tmp_path / "accounts" / name
        file.write_text("222222222222\n")
        then = file.stat().st_mtime - days * 24 * 3600
        os.utime(file, (then, then))
    quick(account(tmp_path)).identity()
    left = {file.name for file in (tmp_path / "accounts").iterdir()}
    assert (len(left), "late" in left) == (2, True)
