"""Google's credentials: which are used, and that a server of somebody else's gets none that was not named for it."""

from __future__ import annotations

import os
import warnings
from typing import Any

KEY_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)


def who(endpoint: str | None) -> str:
    """Return whose credentials are used, in words: never the credential itself."""
    named = os.environ.get(KEY_FILE)
    if named:
        return f"{KEY_FILE}={named}"
    return "nobody's" if endpoint else "the default credentials of this machine"


def find_credentials(endpoint: str | None, quota_project: str | None) -> tuple[Any, str | None]:
    """Return Google's credentials, and the project that they name, if any.

    At somebody else's endpoint only the file is used that GOOGLE_APPLICATION_CREDENTIALS names: nothing that lies about
    on this machine is sent there, and the metadata server of a machine at Google is not asked. Raises what google.auth
    raises.
    """
    import google.auth
    from google.auth.credentials import AnonymousCredentials

    if endpoint and not os.environ.get(KEY_FILE):
        return AnonymousCredentials(), None  # type: ignore[no-untyped-call]
    # It is warned of on everybody's stderr. The filter stays: putting back the old ones would drop what other threads,
    # or libraries that are imported meanwhile, have added.
    warnings.filterwarnings("ignore", ".*without a quota project", UserWarning)
    found, project = google.auth.default(scopes=SCOPES, quota_project_id=quota_project)
    return found, project


def signing(found: Any, endpoint: str | None) -> Any:
    """Return what signs calls: Google's credentials, at somebody else's endpoint so that they ask Google nothing.

    google.auth looks up at iamcredentials.googleapis.com in which regions a service account may act, beside the calls,
    wherever those go (2.62: its "regional access boundary"). Here the account's key signs a token of its own, or the
    token's own address of the file gives one, and no more.
    """
    if not endpoint or not hasattr(found, "refresh") or type(found).__name__ == "AnonymousCredentials":
        return found
    by_itself = getattr(found, "with_always_use_jwt_access", None)
    return _quiet(by_itself(True) if by_itself else found)  # noqa: FBT003  (Google's own signature)


def _quiet(inner: Any) -> Any:
    """Return credentials that renew themselves as `inner` does, and do nothing else."""
    from google.auth.credentials import Credentials

    class Quiet(Credentials):
        """Its token and when that ends are those of `inner`."""

        def refresh(self, request: Any) -> None:
            inner.refresh(request)
            self.token, self.expiry = inner.token, inner.expiry

    return Quiet()  # type: ignore[no-untyped-call]
