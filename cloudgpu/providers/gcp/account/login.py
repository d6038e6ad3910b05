"""Says how long the credentials of a gcp account last, by what google.auth found on this computer. Sends no request.

How each kind lasts: https://cloud.google.com/docs/authentication/application-default-credentials; a user has to
log in again where the organisation limits sessions (https://cloud.google.com/docs/authentication/reauthentication).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from cloudgpu.providers.account_abilities import Login
from cloudgpu.providers.gcp.client import Gcp
from cloudgpu.providers.gcp.credentials import KEY_FILE


def login(gcp: Gcp) -> Login:
    """Return what the account's credential is and how long it lasts; raise AuthFailed where there is none."""
    credentials = gcp.credentials()[0]
    if gcp.endpoint and gcp.who == "nobody's":  # as `credentials.describe` calls anonymous ones
        return Login(f"no credential: calls go to {gcp.endpoint} by CLOUDGPU_GCP_ENDPOINT", None, lasts=True)
    return _login_of(credentials)


def _login_of(credentials: Any) -> Login:
    module = type(credentials).__module__.removeprefix("google.")
    describe = next((describe for name, describe in _DESCRIBE_BY_MODULE.items() if module.endswith(name)), None)
    return describe(credentials) if describe else Login(f"a credential of the kind {module}", None, lasts=None)


def _key_file(credentials: Any) -> Login:
    return Login(f"a key file of {credentials.service_account_email} ({_source_text()})", None, lasts=True)


def _user(credentials: Any) -> Login:
    account_text = f" of {credentials.account}" if getattr(credentials, "account", "") else ""
    if not credentials.refresh_token:
        return Login(f"a token{account_text} that nobody renews", None, lasts=False)
    message = "it is renewed by itself until it is revoked, or until the organisation asks for it again"
    return Login(f"a login{account_text} by gcloud ({_source_text()}): {message}", None, lasts=None)


def _impersonated(credentials: Any) -> Login:
    source = getattr(credentials, "_source_credentials", None)  # it has no public name in google-auth
    source_login = _login_of(source) if source is not None else Login("another credential", None, lasts=None)
    return Login(
        f"{credentials.service_account_email}, taken on with {source_login.what}",
        source_login.until,
        lasts=source_login.lasts,
    )


def _machine(credentials: Any) -> Login:
    service_account = credentials.service_account_email
    account_text = "the service account" if service_account in ("default", None) else service_account
    return Login(f"{account_text} of this machine, renewed by itself", None, lasts=True)


def _federated(_credentials: Any) -> Login:
    return Login(
        f"an identity of another provider ({_source_text()}), renewed as long as that one vouches", None, lasts=None
    )


def _workforce(_credentials: Any) -> Login:
    return Login(f"a login of a workforce pool ({_source_text()}), which ends with its session", None, lasts=False)


def _source_text() -> str:
    return KEY_FILE if os.environ.get(KEY_FILE) else "application default credentials"


# What describes a credential, by the end of the name of its module in google-auth.
_DESCRIBE_BY_MODULE: dict[str, Callable[[Any], Login]] = {
    "auth.impersonated_credentials": _impersonated,
    "oauth2.service_account": _key_file,
    "oauth2.credentials": _user,
    "auth.compute_engine.credentials": _machine,
    "auth.external_account_authorized_user": _workforce,
    "auth.identity_pool": _federated,
    "auth.pluggable": _federated,
    "auth.aws": _federated,
}
