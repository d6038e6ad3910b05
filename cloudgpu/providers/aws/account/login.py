"""Says how long the credentials of an AWS account last, by what botocore found and where. No network call.

How long each kind lasts: https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html; a refreshed SSO
session ends when its registration does (https://docs.aws.amazon.com/sdkref/latest/guide/feature-sso-credentials.html).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cloudgpu.errors import AuthFailed
from cloudgpu.providers.account_abilities import Login
from cloudgpu.providers.aws.client import Aws

_KEY_SOURCES = {
    "env": "the environment",
    "shared-credentials-file": "~/.aws/credentials",
    "config-file": "~/.aws/config",
}
_KEYS_OF_PROFILE = "shared-credentials-file"
_SELF_RENEWING = {
    "iam-role": "the role of this machine",
    "container-role": "the role of this container",
    "assume-role-with-web-identity": "a role by a web identity",
}
_ASKING = {"custom-process": "what credential_process gives", "login": "a session of aws login"}
# By the first of these keys that is in a profile's table, botocore's name for how it has its credentials.
_METHODS = {
    "sso_session": "sso",
    "sso_start_url": "sso",
    "aws_access_key_id": _KEYS_OF_PROFILE,
    "role_arn": "assume-role",
    "credential_process": "custom-process",
}
# Keys of a profile's table, as login tools write them.
_EXPIRY_KEYS = ("aws_session_expiration", "aws_expiration", "x_security_token_expires", "expiration")


def login(aws: Aws) -> Login:
    """Return what the account's credential is and how long it lasts; raise AuthFailed where there is none."""
    from botocore.session import Session

    with aws.calling("credentials", aws.options.home_region):
        session = Session(profile=aws.options.profile)
        credentials, config = session.get_credentials(), session.full_config
        method = "" if credentials is None else str(credentials.method)
        # for any other method, reading the token would log in
        is_temporary = method in _KEY_SOURCES and bool(credentials.token)
    who = f"profile {session.profile}" if session.profile else "the default profile"
    if credentials is None:
        raise AuthFailed(
            f"There are no AWS credentials for account {aws.account} ({who}) in this environment.",
            field="credentials",
            value=who,
            next="Put them where a program without your shell finds them, for example with: aws configure",
        )
    return _profile_login(config, session.profile or "default", method, is_temporary=is_temporary)


def _profile_login(config: Mapping[str, Any], profile: str, method: str, *, is_temporary: bool) -> Login:
    """Return the login of a profile; `method` is botocore's name for the way in which it has its credentials."""
    profile_table = config.get("profiles", {}).get(profile, {})
    if method == "assume-role":
        return _role_login(config, profile, profile_table)
    if method == "sso":
        return _sso_login(config, profile, profile_table)
    if method in _KEY_SOURCES:
        if method == "env":  # botocore reads the end there, too
            profile_table = {"expiration": os.environ.get("AWS_CREDENTIAL_EXPIRATION")}
        return _key_login(profile, profile_table, _KEY_SOURCES[method], is_temporary=is_temporary)
    if method in _SELF_RENEWING:
        return Login(f"{_SELF_RENEWING[method]}, renewed by itself", None, lasts=True)
    description = f"{_ASKING.get(method, method)} (profile {profile}); whether it asks for you, only it can say"
    return Login(description, None, lasts=None)


def _key_login(profile: str, profile_table: Mapping[str, Any], key_source: str, *, is_temporary: bool) -> Login:
    if not is_temporary:
        return Login(f"a long-lived key in {key_source} (profile {profile})", None, lasts=True)
    expires_at = next((_parse_time(profile_table[name]) for name in _EXPIRY_KEYS if profile_table.get(name)), None)
    return Login(
        f"a temporary key in {key_source} (profile {profile})", expires_at, lasts=None if expires_at is None else False
    )


def _role_login(config: Mapping[str, Any], profile: str, profile_table: Mapping[str, Any]) -> Login:
    """Return how long a role can be assumed: as long as the source credentials last, unless it needs an MFA code.

    A chain of roles has an end: botocore has refused one that leads back, but for a profile with keys of its own.
    """
    if profile_table.get("mfa_serial"):
        return Login(f"a role that asks for a code of your device each time (profile {profile})", None, lasts=False)
    source_profile = profile_table.get("source_profile", profile)
    source_table = config.get("profiles", {}).get(source_profile, {})
    method, token = _KEYS_OF_PROFILE, source_table.get("aws_session_token")
    if profile_table.get("credential_source") == "Environment":
        method, token = "env", os.environ.get("AWS_SESSION_TOKEN")
    elif "source_profile" not in profile_table:
        return Login(f"a role, renewed by itself (profile {profile})", None, lasts=True)
    elif source_profile != profile:
        method = next((method for key, method in _METHODS.items() if key in source_table), method)
    source_login = _profile_login(config, source_profile, method, is_temporary=bool(token))
    return Login(f"a role taken on with {source_login.what}", source_login.until, lasts=source_login.lasts)


def _sso_login(config: Mapping[str, Any], profile: str, profile_table: Mapping[str, Any]) -> Login:
    session = profile_table.get("sso_session")
    start_url = config.get("sso_sessions", {}).get(session, {}).get("sso_start_url") if session else None
    description = f"a login of aws sso (profile {profile})"
    token = _sso_token(start_url or profile_table.get("sso_start_url", ""), session)
    if token is None:
        return Login(f"{description}, which is over: run aws sso login", None, lasts=False)
    registration_expires_at = token.get("registrationExpiresAt") if token.get("refreshToken") else None
    expires_at = _parse_time(registration_expires_at or token["expiresAt"])
    if registration_expires_at:  # refreshed until then at the latest; the organisation may end the session sooner
        return Login(f"{description}, refreshed by itself until then at the latest", expires_at, lasts=None)
    return Login(description, expires_at, lasts=False)


def _sso_token(start_url: str, session: str | None) -> Mapping[str, Any] | None:
    from botocore.exceptions import SSOTokenLoadError
    from botocore.utils import JSONFileCache, SSOTokenLoader

    cache = Path("~/.aws/sso/cache").expanduser()  # botocore's, with no setting of its own
    try:
        token: Mapping[str, Any] = SSOTokenLoader(JSONFileCache(str(cache)))(start_url, session)
    except (SSOTokenLoadError, OSError, ValueError):
        return None
    return token


def _parse_time(text: Any) -> datetime | None:
    try:
        parsed = datetime.fromisoformat(str(text).replace("UTC", "Z").strip())
    except ValueError:
        return None
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
