"""How long each kind of AWS credential lasts with nobody at the keyboard, by the files that login tools write."""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from botocore.tokens import SSOTokenProvider

from cloudgpu.errors import AuthFailed, InvalidRequest, ProviderUnavailable
from cloudgpu.providers.aws.account.login import login
from cloudgpu.providers.aws.client import Aws
from cloudgpu.providers.base import ProviderSettings

KEYS = "aws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = wJalrXUtnFEMI\n"
EXPIRED = json.dumps(
    {"Version": 1, "AccessKeyId": "AKIDEXAMPLE", "SecretAccessKey": "x", "Expiration": "2020-01-01T00:00:00Z"}
)
ENDS = "2026-11-20T23:00:00Z"
AT = datetime(2026, 11, 20, 23, tzinfo=UTC)


@pytest.fixture
def found(tmp_path, monkeypatch):
    """Login of an account with these files, as botocore reads them; nothing else is known of AWS here."""
    import os

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws" / "sso" / "cache").mkdir(parents=True)

    def login_with(*, config="", credentials="", profile=None, token=None):
        (tmp_path / ".aws" / "config").write_text(config)
        (tmp_path / ".aws" / "credentials").write_text(credentials)
        if token:
            name = hashlib.sha1(b"lab", usedforsecurity=False).hexdigest()
            (tmp_path / ".aws" / "sso" / "cache" / f"{name}.json").write_text(json.dumps(token))
        options = {"profile": profile} if profile else {}
        settings = ProviderSettings("aws", options, tmp_path, lambda: AT, lambda _: None, "ledger")
        return login(Aws(settings))

    return login_with


SSO = """[profile lab]
sso_session = lab
sso_account_id = 123456789012
sso_role_name = gpu
[sso-session lab]
sso_start_url = https://lab.awsapps.com/start
sso_region = us-east-1
"""


def test_a_long_lived_key_lasts(found):
    one = found(credentials=f"[default]\n{KEYS}")
    assert (one.lasts, one.until) == (True, None)
    assert "wJalr" not in repr(one)
    assert "AKID" not in repr(one)


def test_a_temporary_key_ends_when_the_tool_that_wrote_it_says(found):
    one = found(credentials=f"[default]\n{KEYS}aws_session_token = x\nx_security_token_expires = {ENDS}\n")
    assert (one.lasts, one.until) == (False, AT)


def test_a_temporary_key_of_the_environment_ends_when_the_environment_says(found, monkeypatch):
    for name, value in {"ACCESS_KEY_ID": "AKIDEXAMPLE", "SECRET_ACCESS_KEY": "wJalr", "SESSION_TOKEN": "x"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    other = f"[default]\nx_security_token_expires = {ENDS}\n"
    assert found(credentials=other).until is None  # that is the end of another key
    monkeypatch.setenv("AWS_CREDENTIAL_EXPIRATION", "2999-11-20T23:00:00Z")
    one = found(credentials=other)
    assert (one.lasts, one.until) == (False, AT.replace(year=2999))
    monkeypatch.setenv("AWS_CREDENTIAL_EXPIRATION", "2020-01-01T00:00:00Z")  # as `aws-vault exec` leaves it in a shell
    with pytest.raises(AuthFailed, match="have expired"):
        found()


def test_of_a_temporary_key_without_an_end_nobody_knows(found):
    one = found(credentials=f"[default]\n{KEYS}aws_session_token = x\n")
    assert (one.lasts, one.until) == (None, None)
    assert "temporary" in one.what


def test_a_login_of_sso_ends_with_its_token(found):
    one = found(config=SSO, profile="lab", token={"accessToken": "x", "expiresAt": ENDS})
    assert (one.lasts, one.until) == (False, AT)


def test_a_login_of_sso_that_is_refreshed_ends_with_its_registration_at_the_latest(found):
    token = {"accessToken": "x", "expiresAt": "2026-11-20T12:00:00Z", "refreshToken": "y"}
    one = found(config=SSO, profile="lab", token=token | {"registrationExpiresAt": ENDS})
    assert (one.lasts, one.until) == (None, AT)


def test_a_login_of_sso_that_is_over_does_not_last(found):
    one = found(config=SSO, profile="lab")
    assert (one.lasts, one.until) == (False, None)
    assert "aws sso login" in one.what


def test_a_role_lasts_as_long_as_what_it_is_taken_on_with(found):
    role = "[profile gpu]\nrole_arn = arn:aws:iam::123456789012:role/gpu\nsource_profile = "
    assert found(config=f"{role}keys\n", credentials=f"[keys]\n{KEYS}", profile="gpu").lasts is True
    one = found(config=f"{role}lab\n{SSO}", profile="gpu", token={"accessToken": "x", "expiresAt": ENDS})
    assert (one.lasts, one.until) == (False, AT)


@pytest.mark.parametrize("token", ["", "x"])
def test_a_role_that_is_taken_on_with_keys_of_the_environment_or_of_itself_lasts_as_long_as_they_do(
    found, monkeypatch, token
):
    role = "[profile gpu]\nrole_arn = arn:aws:iam::123456789012:role/gpu\n"
    own = f"[gpu]\n{KEYS}{f'aws_session_token = {token}' if token else ''}\n"
    one = found(config=f"{role}source_profile = gpu\n", credentials=own, profile="gpu")
    assert one.lasts is (None if token else True)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    if token:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    one = found(config=f"{role}credential_source = Environment\n", profile="gpu")
    assert (one.lasts, "the environment" in one.what) == (None if token else True, True)


def test_roles_that_lead_back_to_one_another_are_said(found):
    role = "role_arn = arn:aws:iam::123456789012:role/gpu\n"
    with pytest.raises((AuthFailed, InvalidRequest)):
        found(config=f"[profile a]\n{role}source_profile = b\n[profile b]\n{role}source_profile = a\n", profile="a")


def test_a_role_that_asks_for_a_code_needs_somebody(found):
    role = "[profile gpu]\nrole_arn = arn:aws:iam::123456789012:role/gpu\nsource_profile = keys\n"
    one = found(config=f"{role}mfa_serial = arn:aws:iam::123456789012:mfa/ada\n", credentials=f"[keys]\n{KEYS}",
                profile="gpu")  # fmt: skip
    assert (one.lasts, one.until) == (False, None)


def test_what_a_command_gives_is_for_the_command_to_say(found):
    said = json.dumps({"Version": 1, "AccessKeyId": "AKIDEXAMPLE", "SecretAccessKey": "wJalrXUtnFEMI"})
    one = found(config=f"[default]\ncredential_process = echo '{said}'\n")
    assert (one.lasts, one.until) == (None, None)


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ("credential_process = /nonexistent/tool", AuthFailed),
        ("role_arn = arn:aws:iam::123456789012:role/gpu\nweb_identity_token_file = /nonexistent/token", AuthFailed),
        (f"credential_process = echo '{EXPIRED}'", AuthFailed),
        ("credential_process = echo nonsense", InvalidRequest),
        ("max_attempts = many", InvalidRequest),
    ],
)
def test_a_credential_or_setting_that_cannot_be_used_is_an_error_of_its_account_alone(found, tmp_path, config, error):
    """An error of another class would end a command, or a run of the reaper, for all other accounts, too."""
    with suppress(AuthFailed, InvalidRequest):
        found(config=f"[profile lab]\n{config}\n", credentials=f"[lab]\n{KEYS * ('many' in config)}", profile="lab")
    aws = Aws(ProviderSettings("aws", {"profile": "lab"}, tmp_path, lambda: AT, lambda _: None, "ledger"))
    with pytest.raises(error, match=r"account aws|AWS client"), aws.calling("DescribeInstances", "us-east-1"):
        aws.ec2("us-east-1").describe_instances()


def test_no_credential_at_all_is_said(found):
    with pytest.raises(AuthFailed, match="no AWS credentials for account aws"):
        found()


def test_a_profile_that_is_not_there_is_said(found):
    with pytest.raises(AuthFailed, match="profile nosuch"):
        found(profile="nosuch")


class _Busy(BaseHTTPRequestHandler):
    """A sign-in service that answers everybody with 503."""

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_words):
        """Be silent."""


@pytest.fixture
def busy_service():
    """The address of a sign-in service that answers 503."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Busy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_login_that_a_busy_sign_in_service_does_not_renew_is_not_told_as_expired(
    found, tmp_path, monkeypatch, busy_service
):
    token = {"accessToken": "t", "expiresAt": "2020-01-01T00:00:00Z", "refreshToken": "r", "clientId": "c"}
    token |= {"clientSecret": "s", "registrationExpiresAt": "2999-01-01T00:00:00Z", "region": "us-east-1"}
    found(config=SSO, profile="lab", token={**token, "startUrl": "https://lab.awsapps.com/start"})
    monkeypatch.setenv("AWS_ENDPOINT_URL_SSO_OIDC", busy_service)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(SSOTokenProvider, "_SSO_TOKEN_CACHE_DIR", str(tmp_path / ".aws" / "sso" / "cache"))
    aws = Aws(ProviderSettings("aws", {"profile": "lab"}, tmp_path, lambda: AT, lambda _: None, "ledger"))
    with pytest.raises(ProviderUnavailable, match="sign-in service answered with 503"), aws.calling("X", "us-east-1"):
        aws.ec2("us-east-1").describe_instances()
