"""Finds the credential that signs the calls. One that is found by default is sent to Azure and to nobody else.

azure-identity raises the same ClientAuthenticationError for a sign-in service that is down and for credentials that it
refuses, mostly without the HTTP status. So the answers of sign-in services are recorded, and read when it raises.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from cloudgpu.errors import AnswerTimeout, AuthFailed, ProviderUnavailable, RateLimited
from cloudgpu.providers.shared.errors import retry_after, shorten

# azure-identity logs a warning for each failed login; the error says it once. A handler of the user's still gets them.
logging.getLogger("azure").addHandler(logging.NullHandler())
_CLIENT_SECRET_VARIABLES = ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET")
AUTHORITY_VARIABLE = "AZURE_AUTHORITY_HOST"
# From these variables azure-identity knows that this machine has a managed identity.
IDENTITY_VARIABLES = ("IDENTITY_ENDPOINT", "MSI_ENDPOINT", "AZURE_POD_IDENTITY_AUTHORITY_HOST")


def credential(tenant: str | None, endpoint: str | None, transport: Any) -> Any:
    """Return a credential of azure-core's protocol; `endpoint` is the user's own server in Azure's place, None: Azure.

    At such a server, only credentials that the environment names together with their authority are used; without
    them it is sent a token that means nothing.
    """
    if endpoint is None:
        return _default_credential(tenant)
    if os.environ.get(AUTHORITY_VARIABLE) and all(os.environ.get(name) for name in _CLIENT_SECRET_VARIABLES):
        return _client_secret_credential(tenant, transport)
    if any(os.environ.get(name) for name in IDENTITY_VARIABLES):
        from azure.identity import ManagedIdentityCredential

        return CheckedCredential(partial(ManagedIdentityCredential, client_id=os.environ.get("AZURE_CLIENT_ID")))
    return _MeaninglessTokenCredential()


def _default_credential(tenant: str | None) -> Any:
    """Return what azure-identity finds: the environment, a managed identity, az login, ..."""
    from azure.identity import DefaultAzureCredential

    if tenant is None:
        return CheckedCredential(DefaultAzureCredential)
    return _TenantCredential(
        CheckedCredential(partial(DefaultAzureCredential, additionally_allowed_tenants=[tenant])), tenant
    )


def _client_secret_credential(tenant: str | None, transport: Any) -> Any:
    from azure.identity import ClientSecretCredential

    environment_tenant, client, secret = (os.environ[name] for name in _CLIENT_SECRET_VARIABLES)
    create = partial(
        ClientSecretCredential,
        tenant or environment_tenant,
        client,
        secret,
        authority=os.environ[AUTHORITY_VARIABLE],
        disable_instance_discovery=True,  # else it asks Microsoft whether the authority is known
        transport=transport,
    )
    return CheckedCredential(create)


def credentials_label() -> str:
    """Return a text that says which credentials are used, for errors: never the credential itself."""
    if all(os.environ.get(name) for name in _CLIENT_SECRET_VARIABLES):
        return "AZURE_CLIENT_ID of the environment"
    if os.environ.get("AZURE_FEDERATED_TOKEN_FILE"):
        return "the workload identity of the environment"
    if any(os.environ.get(name) for name in IDENTITY_VARIABLES):
        return "the managed identity of this machine"
    return "the default credentials of this machine"


@dataclass(frozen=True, slots=True)
class _TenantCredential:
    """Asks another credential for tokens of one tenant."""

    credential: Any
    tenant: str

    def get_token(self, *scopes: str, **options: Any) -> Any:
        return self.credential.get_token(*scopes, **{**options, "tenant_id": self.tenant})


@dataclass(frozen=True, slots=True)
class _MeaninglessTokenCredential:
    """No credential: the user's own server is sent a token that means nothing."""

    def get_token(self, *_scopes: str, **_more: Any) -> Any:
        from azure.core.credentials import AccessToken

        return AccessToken("nobody", sys.maxsize)


THROTTLED, SERVER_ERROR = 429, 500  # HTTP statuses; all above 500 are server errors, too
_LINK_LOCAL = "169.254."  # where Azure serves a machine's own identity; outside Azure, no answer there proves nothing


class CheckedCredential:
    """A credential of azure-core's protocol: that of `make_credential`, with hooks that record its services' answers.

    Raises RateLimited, AnswerTimeout and ProviderUnavailable where the sign-in service failed, else what the credential
    raises. Making one raises AuthFailed for settings that azure-identity cannot use: a certificate that is not there.
    """

    def __init__(self, make_credential: Callable[..., Any]) -> None:
        self._thread_answers = threading.local()
        try:
            self._inner = make_credential(raw_request_hook=self._record_request, raw_response_hook=self._record_answer)
        except (OSError, ValueError) as error:
            message = f"The Azure credentials ({credentials_label()}) cannot be used: {shorten(str(error))}."
            remedy = "Correct or unset the variables of the environment that begin with AZURE_."
            raise AuthFailed(message, field="credentials", value=credentials_label(), next=remedy) from error

    def get_token(self, *scopes: str, **options: Any) -> Any:
        """Return a token, as azure-core asks for it."""
        from azure.core.exceptions import ClientAuthenticationError

        self._thread_answers.by_host = {}
        try:
            return self._inner.get_token(*scopes, **options)
        except ClientAuthenticationError as error:
            for host, answer in self._thread_answers.by_host.items():
                service_error = _service_error(host, answer)
                if service_error is not None:
                    raise (
                        AnswerTimeout(service_error.message, field="provider") if _is_timeout(error) else service_error
                    ) from error
            raise

    def _record_request(self, request: Any) -> None:
        host = urlsplit(request.http_request.url).hostname or ""
        if not host.startswith(_LINK_LOCAL):
            self._record(host, None)

    def _record_answer(self, response: Any) -> None:
        self._record(urlsplit(response.http_request.url).hostname or "", response.http_response)

    def _record(self, host: str, answer: Any) -> None:
        """Store the last answer of each host; None while it has not answered."""
        if hasattr(self._thread_answers, "by_host"):
            self._thread_answers.by_host[host] = answer


def _is_timeout(error: BaseException | None) -> bool:
    """Say whether a call timed out, which azure-identity wraps into an error of its own."""
    while error is not None and not isinstance(error, AnswerTimeout):
        error = error.__cause__ or error.__context__
    return error is not None


def _service_error(host: str, answer: Any) -> ProviderUnavailable | None:
    """Return the error for a sign-in service that failed; None for one that works. `answer` None: it did not answer."""
    status = None if answer is None else int(answer.status_code)
    if status is not None and status < SERVER_ERROR and status != THROTTLED:
        return None
    sentence = "did not answer" if status is None else f"answered with the status {status}"
    message = f"The sign-in service {host} {sentence}, so it is not known whether the Azure credentials are good."
    if status == THROTTLED:
        seconds = retry_after(answer.headers)
        return RateLimited(message, retry_after=seconds, field="provider", next="Wait a minute and run it again.")
    return ProviderUnavailable(message, field="provider", next="Run it again in a while.")
