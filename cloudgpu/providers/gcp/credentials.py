"""Google's credentials: which are used. Another endpoint than Google's gets only those of KEY_FILE."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

KEY_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)


def describe(endpoint: str | None) -> str:
    """Return whose credentials are used, as text for messages: never the credential itself."""
    key_file = os.environ.get(KEY_FILE)
    if key_file:
        return f"{KEY_FILE}={key_file}"
    return "nobody's" if endpoint else "the default credentials of this machine"


def find_credentials(endpoint: str | None, quota_project: str | None) -> tuple[Any, str | None]:
    """Return Google's credentials, and the project that they name, if any.

    With another `endpoint` than Google's, only the file that GOOGLE_APPLICATION_CREDENTIALS names is used: no other
    credential of this machine is sent there, and no metadata server is queried. Raises what google.auth raises.
    """
    from google.auth.credentials import AnonymousCredentials

    if endpoint and not os.environ.get(KEY_FILE):
        return AnonymousCredentials(), None  # type: ignore[no-untyped-call]
    # google.auth warns on stderr. The filter stays: restoring the old ones would drop those that other threads, or
    # libraries that are imported meanwhile, have added.
    warnings.filterwarnings("ignore", ".*without a quota project", UserWarning)
    return default_credentials(SCOPES, quota_project)


def default_credentials(scopes: Sequence[str], quota_project: str | None = None) -> tuple[Any, str | None]:
    """Return this machine's default credentials, and the project that they name, if any. Raises GoogleAuthError."""
    import google.auth
    from google.auth.exceptions import DefaultCredentialsError

    try:
        credentials, project = google.auth.default(scopes=scopes, quota_project_id=quota_project)
    except (AttributeError, KeyError, TypeError) as error:  # google.auth 2.62 takes any JSON file for an object
        raise DefaultCredentialsError(  # type: ignore[no-untyped-call]
            f"{os.environ.get(KEY_FILE) or 'The file of the default credentials'} is not a Google credential."
        ) from error
    return credentials, project


def credentials_for_calls(credentials: Any, endpoint: str | None) -> Any:
    """Return the credentials that calls are sent with; with another `endpoint` than Google's, they ask Google nothing.

    google.auth looks up at iamcredentials.googleapis.com in which regions a service account may act, beside the calls,
    wherever those go (2.62: its "regional access boundary"). With another endpoint, a service account's key signs each
    access token on this computer; credentials that cannot do so fetch one from the address that their file names for
    tokens. Nothing else is sent.
    """
    if not endpoint or not hasattr(credentials, "refresh") or type(credentials).__name__ == "AnonymousCredentials":
        return credentials
    self_signing = getattr(credentials, "with_always_use_jwt_access", None)
    return _without_lookups(self_signing(True) if self_signing else credentials)  # noqa: FBT003  (Google's own signature)


def _without_lookups(credentials: Any) -> Any:
    """Return credentials that renew themselves as `credentials` do, and look nothing else up."""
    from google.auth.credentials import Credentials

    class WithoutLookups(Credentials):
        """The token, its expiry and the project to which Google counts the calls are those of `credentials`."""

        @property
        def quota_project_id(self) -> Any:
            return getattr(credentials, "quota_project_id", None)

        def refresh(self, request: Any) -> None:
            credentials.refresh(request)
            self.token, self.expiry = credentials.token, credentials.expiry

    return WithoutLookups()  # type: ignore[no-untyped-call]
