"""What the account's credential is and how long it lasts with nobody at the keyboard, in words. Asks nobody."""

from __future__ import annotations

import os
from pathlib import Path

from cloudgpu.errors import AuthFailed
from cloudgpu.providers.account_abilities import Login
from cloudgpu.providers.azure.client import Azure
from cloudgpu.providers.azure.credentials import AUTHORITY, IDENTITY

ENDPOINT = "CLOUDGPU_AZURE_ENDPOINT"
# How a system knows that it runs on Azure: cloud-init's DataSourceAzure and walinuxagent read the same tag.
_CHASSIS, _AZURE = Path("/sys/class/dmi/id/chassis_asset_tag"), "7783-7084-3265-9085-8269-3286-77"
# Of a client secret or a certificate, only the directory knows the end (two years at most, as the portal makes them).
_ENDS = "its end is known to Entra ID alone"
_CLI = "AZURE_CONFIG_DIR"  # where the Azure CLI keeps its login; ~/.azure without it


def login(azure: Azure) -> Login:
    """Return the credential that azure-identity takes first here; raise AuthFailed where nothing is found.

    The order is DefaultAzureCredential's: the environment, a workload's identity, a managed one, the tools' logins.
    """
    if azure.endpoint is not None and not os.environ.get(AUTHORITY) and _identity() is None:
        what = f"none: the server that {ENDPOINT} names is sent no credential that was found by default"
        return Login(what, None, lasts=True)
    found = _environment() or _identity() or _tools() or _machine()
    if found is not None:
        return found
    raise AuthFailed(
        f"There are no Azure credentials for account {azure.account} in this environment.",
        field="credentials",
        value=None,
        next="Run: az login (or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET).",
    )


def _machine() -> Login | None:
    """Return the identity of the machine that this runs on, where that is one of Azure's."""
    try:
        tag = _CHASSIS.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    what = "the managed identity of this machine, if it was given one; renewed by itself"
    return Login(what, None, lasts=True) if tag == _AZURE else None


def _environment() -> Login | None:
    """Return a service principal of the environment; None where its three variables are not all there."""
    if not (os.environ.get("AZURE_TENANT_ID") and os.environ.get("AZURE_CLIENT_ID")):
        return None
    if os.environ.get("AZURE_CLIENT_SECRET"):
        return Login(f"a service principal with a secret in the environment; {_ENDS}", None, lasts=None)
    if os.environ.get("AZURE_CLIENT_CERTIFICATE_PATH"):
        return Login("a service principal with a certificate; it says itself when it ends", None, lasts=None)
    if os.environ.get("AZURE_FEDERATED_TOKEN_FILE"):
        return Login("a workload's identity, renewed by itself", None, lasts=True)
    return None


def _identity() -> Login | None:
    if any(os.environ.get(name) for name in IDENTITY):
        return Login("the managed identity of this machine, renewed by itself", None, lasts=True)
    return None


def _tools() -> Login | None:
    """Return the login of the Azure CLI, where one is kept.

    It is refreshed by itself while it is used at least every 90 days ("Refresh tokens in the Microsoft identity
    platform"), unless the organisation asks sooner.
    """
    folder = Path(os.environ.get(_CLI) or "~/.azure").expanduser()
    names = ("msal_token_cache.json", "msal_token_cache.bin", "service_principal_entries.json")
    if not any((folder / name).is_file() for name in names):
        return None
    what = "a login of the Azure CLI, refreshed by itself until the organisation asks for it again"
    return Login(what, None, lasts=None)
