"""Says how long the credentials of a gcp account last, by what google.auth found on this computer. Sends no request.

How each kind lasts: https://cloud.google.com/docs/authentication/application-default-credentials; a user has to
log in again where the organisation limits sessions (https://cloud.google.com/docs/authentication/reauthentication).
"""

from __future__ import annotations

import os
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
    if module.endswith("oauth2.credentials"):
        return _user_login(credentials)
    if module.endswith("auth.impersonated_credentials"):
        return _impersonated_login(credentials)
    unknown_kind = f"a credential of the kind {module}", None
    text, lasts = next((kind for name, kind in _KINDS.items() if module.endswith(name)), unknown_kind)
    service_account = getattr(credentials, "service_account_email", None)
    if service_account in ("default", None):
        service_account = "the service account"
    return Login(text.format(service_account=service_account, source=_source_text()), None, lasts=lasts)


def _user_login(credentials: Any) -> Login:
    account_text = f" of {credentials.account}" if getattr(credentials, "account", "") else ""
    if not credentials.refresh_token:
        return Login(f"a token{account_text} that nobody renews", None, lasts=False)
    message = "it is renewed by itself until it is revoked, or until the organisation asks for it again"
    return Login(f"a login{account_text} by gcloud ({_source_text()}): {message}", None, lasts=None)


def _impersonated_login(credentials: Any) -> Login:
    source = getattr(credentials, "_source_credentials", None)  # it has no public name in google-auth
    source_login = _login_of(source) if source is not None else Login("another credential", None, lasts=None)
    description = f"{credentials.service_account_email}, taken on with {source_login.what}"
    return Login(description, source_login.until, lasts=source_login.lasts)


def _source_text() -> str:
    return KEY_FILE if os.environ.get(KEY_FILE) else "application default credentials"


_FEDERATED = "an identity of another provider ({source}), renewed as long as that one vouches", None
# What a credential is and whether it lasts, by the end of the name of its module in google-auth.
_KINDS: dict[str, tuple[str, bool | None]] = {
    "oauth2.service_account": ("a key file of {service_account} ({source})", True),
    "auth.compute_engine.credentials": ("{service_account} of this machine, renewed by itself", True),
    "auth.external_account_authorized_user": (
        "a login of a workforce pool ({source}), which ends with its session",
        False,
    ),
    "auth.identity_pool": _FEDERATED,
    "auth.pluggable": _FEDERATED,
    "auth.aws": _FEDERATED,
}
