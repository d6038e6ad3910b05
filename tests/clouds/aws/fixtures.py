"""The fixture `aws`: a server per test process, forgotten between tests; import it in the conftest that needs it."""

from __future__ import annotations

import os

import pytest

from tests.clouds.aws.server import AwsServer

_DROPPED = ("AWS_PROFILE", "AWS_REGION", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_EC2", "AWS_MAX_ATTEMPTS")


@pytest.fixture(scope="session")
def aws_process():
    """One server for all tests of this process."""
    server = AwsServer().start()
    yield server
    server.stop()


@pytest.fixture
def aws(aws_process, monkeypatch, tmp_path_factory):
    """Our model of AWS, empty, and the environment in which boto3 finds it and no settings of whoever runs this."""
    aws_process.reset()
    for name in _DROPPED:
        monkeypatch.delenv(name, raising=False)
    for name, value in aws_process.environ.items():
        monkeypatch.setenv(name, value)
    nothing = os.fspath(tmp_path_factory.getbasetemp() / "no-such-file")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, nothing)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    yield aws_process
    assert not aws_process.unmodelled, f"our model of AWS lacks: {aws_process.unmodelled}"
