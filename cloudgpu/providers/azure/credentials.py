"""Whose credential signs the calls. One that is found by default goes to Azure and to nobody else.

azure-identity raises the same ClientAuthenticationError for a sign-in service that is down and for credentials that it
refuses, mostly without the status. So each answer that its pipelines get is noted, and looked up when no token came of
it.
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

from cloudgpu.errors import ProviderUnavailable, RateLimited, Silent
from cloudgpu.providers.shared.errors import retry_after

# azure-identity warns of each login that failed; the error says it once. Who wants its log sets a handler.
logging.getLogger("azure").addHandler(logging.NullHandler())
_SECRET = ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET")
AUTHORITY = "AZURE_AUTHORITY_HOST"
# By these variables azure-identity knows that a managed identity is served here.
IDENTITY = ("IDENTITY_ENDPOINT", "MSI_ENDPOINT", "AZURE_POD_IDENTITY_AUTHORITY_HOST")


def credential(tenant: str | None, endpoint: str | None, transport: Any) -> Any:
    """Return a credential of azure-core's protocol; `endpoint` is somebody's own server in Azure's place, None: Azure.

    At somebody's own server those that the environment names together with their authority are used, else none at
    all: a word that means nothing stands in the token's place.
    """
    if endpoint is None:
        return _default_credential(tenant)
    if os.environ.get(AUTHORITY) and all(os.environ.get(name) for name in _SECRET):
        return _secret(tenant, transport)
    if any(os.environ.get(name) for name in IDENTITY):
        from azure.identity import ManagedIdentityCredential

        return Watched(partial(ManagedIdentityCredential, client_id=os.environ.get("AZURE_CLIENT_ID")))
    return _NoCredential()


def _default_credential(tenant: str | None) -> Any:
    """Return what azure-identity finds: the environment, a managed identity, az login, ..."""
    from azure.identity import DefaultAzureCredential

    if tenant is None:
        return Watched(DefaultAzureCredential)
    return _TenantCredential(Watched(partial(DefaultAzureCredential, additionally_allowed_tenants=[tenant])), tenant)


def _secret(tenant: str | None, transport: Any) -> Any:
    from azure.identity import ClientSecretCredential

    named, client, secret = (os.environ[name] for name in _SECRET)
    create = partial(
        ClientSecretCredential,
        tenant or named,
        client,
        secret,
        authority=os.environ[AUTHORITY],
        disable_instance_discovery=True,  # else it asks Microsoft whether the authority is known
        transport=transport,
    )
    return Watched(create)


def who() -> str:
    """Return whose credentials are used, in words: never the credential itself."""
    if os.environ.get("AZURE_CLIENT_ID") and os.environ.get("AZURE_CLIENT_SECRET"):
        return "AZURE_CLIENT_ID of the environment"
    if os.environ.get("AZURE_FEDERATED_TOKEN_FILE"):
        return "the workload identity of the environment"
    if any(os.environ.get(name) for name in IDENTITY):
        return "the managed identity of this machine"
    return "the default credentials of this machine"


@dataclass(frozen=True, slots=True)
class _TenantCredential:
    """Asks another credential for tokens of one tenant."""

    inner: Any
    tenant: str

    def get_token(self, *scopes: str, **more: Any) -> Any:
        return self.inner.get_token(*scopes, **{**more, "tenant_id": self.tenant})


@dataclass(frozen=True, slots=True)
class _NoCredential:
    """No credential: what a server of one's own is sent in a token's place."""

    def get_token(self, *_scopes: str, **_more: Any) -> Any:
        from azure.core.credentials import AccessToken

        return AccessToken("nobody", sys.maxsize)


THROTTLED, SERVER_ERROR = 429, 500  # and all statuses from that on
_LINK_LOCAL = "169.254."  # a machine's own identity: nobody answers there outside Azure, which says nothing


class Watched:
    """A credential of azure-core's protocol: the one that `make` returns, given the hooks of azure-core's pipelines.

    Raises RateLimited, Silent and ProviderUnavailable where the service that gives tokens is at fault, else what the
    credential raises.
    """

    def __init__(self, make: Callable[..., Any]) -> None:
        self._answers = threading.local()
        self._inner = make(raw_request_hook=self._note_request, raw_response_hook=self._note_answer)

    def get_token(self, *scopes: str, **more: Any) -> Any:
        """Return a token, as azure-core asks for it."""
        from azure.core.exceptions import ClientAuthenticationError

        self._answers.by_host = {}
        try:
            return self._inner.get_token(*scopes, **more)
        except ClientAuthenticationError as error:
            for host, answer in self._answers.by_host.items():
                fault = _fault(host, answer)
                if fault is not None:
                    raise (Silent(fault.message, field="provider") if _is_timeout(error) else fault) from error
            raise

    def _note_request(self, request: Any) -> None:
        host = urlsplit(request.http_request.url).hostname or ""
        if not host.startswith(_LINK_LOCAL):
            self._note(host, None)

    def _note_answer(self, response: Any) -> None:
        self._note(urlsplit(response.http_request.url).hostname or "", response.http_response)

    def _note(self, host: str, answer: Any) -> None:
        """Keep the last answer of each host; None while it is silent."""
        if hasattr(self._answers, "by_host"):
            self._answers.by_host[host] = answer


def _is_timeout(error: BaseException | None) -> bool:
    """Say whether the time of a call has run out, which azure-identity wraps into an error of its own."""
    while error is not None and not isinstance(error, Silent):
        error = error.__cause__ or error.__context__
    return error is not None


def _fault(host: str, answer: Any) -> ProviderUnavailable | None:
    """Return what is wrong with a service; None where it answered as one that works."""
    status = None if answer is None else int(answer.status_code)
    if status is not None and status < SERVER_ERROR and status != THROTTLED:
        return None
    sentence = "did not answer" if status is None else f"answered with the status {status}"
    message = f"The sign-in service {host} {sentence}, so it is not known whether the Azure credentials are good."
    if status == THROTTLED:
        seconds = retry_after(answer.headers)
        return RateLimited(message, retry_after=seconds, field="provider", next="Wait a minute and run it again.")
    return ProviderUnavailable(message, field="provider", next="Run it again in a while.")
