"""Whose credential signs the calls. One that is found by default goes to Azure and to nobody else."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any

from cloudgpu.providers.azure.signin import Watched

# azure-identity warns of each login that failed; the error says it once. Who wants its log sets a handler.
logging.getLogger("azure").addHandler(logging.NullHandler())
_SECRET = ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET")
AUTHORITY = "AZURE_AUTHORITY_HOST"
# By these variables azure-identity knows that a managed identity is served here.
IDENTITY = ("IDENTITY_ENDPOINT", "MSI_ENDPOINT", "AZURE_POD_IDENTITY_AUTHORITY_HOST")


def credential(tenant: str | None, endpoint: str | None, wire: Any) -> Any:
    """Return a credential of azure-core's protocol; `endpoint` is somebody's own server in Azure's place, None: Azure.

    At somebody's own server those that the environment names together with their authority are used, else none at
    all: a word that means nothing stands in the token's place.
    """
    if endpoint is None:
        return _default_credential(tenant)
    if os.environ.get(AUTHORITY) and all(os.environ.get(name) for name in _SECRET):
        return _secret(tenant, wire)
    if any(os.environ.get(name) for name in IDENTITY):
        from azure.identity import ManagedIdentityCredential

        return Watched(partial(ManagedIdentityCredential, client_id=os.environ.get("AZURE_CLIENT_ID")))
    return _Nobody()


def _default_credential(tenant: str | None) -> Any:
    """Return what azure-identity finds: the environment, a managed identity, az login, ..."""
    from azure.identity import DefaultAzureCredential

    if tenant is None:
        return Watched(DefaultAzureCredential)
    return _OfTenant(Watched(partial(DefaultAzureCredential, additionally_allowed_tenants=[tenant])), tenant)


def _secret(tenant: str | None, wire: Any) -> Any:
    from azure.identity import ClientSecretCredential

    named, client, secret = (os.environ[name] for name in _SECRET)
    made = partial(
        ClientSecretCredential,
        tenant or named,
        client,
        secret,
        authority=os.environ[AUTHORITY],
        disable_instance_discovery=True,  # else it asks Microsoft whether the authority is known
        transport=wire,
    )
    return Watched(made)


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
class _OfTenant:
    """Asks another credential for tokens of one tenant."""

    inner: Any
    tenant: str

    def get_token(self, *scopes: str, **more: Any) -> Any:
        return self.inner.get_token(*scopes, **{**more, "tenant_id": self.tenant})


@dataclass(frozen=True, slots=True)
class _Nobody:
    """No credential: what a server of one's own is sent in a token's place."""

    def get_token(self, *_scopes: str, **_more: Any) -> Any:
        from azure.core.credentials import AccessToken

        return AccessToken("nobody", sys.maxsize)
