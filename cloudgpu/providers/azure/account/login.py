"""Describes the account's credential and how long it lasts while nobody renews it. No network call."""

from __future__ import annotations

import os
from pathlib import Path

from cloudgpu.errors import AuthFailed
from cloudgpu.providers.account_abilities import Login
from cloudgpu.providers.azure.client import Azure
from cloudgpu.providers.azure.credentials import AUTHORITY_VARIABLE, IDENTITY_VARIABLES

ENDPOINT = "CLOUDGPU_AZURE_ENDPOINT"
# How a system knows that it runs on Azure: cloud-init's DataSourceAzure and walinuxagent read the same tag.
_CHASSIS_TAG_FILE, _AZURE_CHASSIS_TAG = Path("/sys/class/dmi/id/chassis_asset_tag"), "7783-7084-3265-9085-8269-3286-77"
# Only Entra ID knows when a client secret expires (after two years at most, if the portal made it).
_UNKNOWN_EXPIRY = "its end is known to Entra ID alone"
_SERVICE_PRINCIPAL = ("AZURE_TENANT_ID", "AZURE_CLIENT_ID")
# The logins that the environment names, in the order in which they are tried: its variables, what it is, and whether it
# lasts.
_LOGINS_BY_ENVIRONMENT: tuple[tuple[tuple[str, ...], str, bool | None], ...] = (
    (
        (*_SERVICE_PRINCIPAL, "AZURE_CLIENT_SECRET"),
        f"a service principal with a secret in the environment; {_UNKNOWN_EXPIRY}",
        None,
    ),
    (
        (*_SERVICE_PRINCIPAL, "AZURE_CLIENT_CERTIFICATE_PATH"),
        "a service principal with a certificate; it says itself when it ends",
        None,
    ),
    ((*_SERVICE_PRINCIPAL, "AZURE_FEDERATED_TOKEN_FILE"), "a workload's identity, renewed by itself", True),
    *(((name,), "the managed identity of this machine, renewed by itself", True) for name in IDENTITY_VARIABLES),
)
_CLI_FOLDER_VARIABLE = "AZURE_CONFIG_DIR"  # where the Azure CLI keeps its login; ~/.azure without it


def login(azure: Azure) -> Login:
    """Return the credential that azure-identity takes first here; raise AuthFailed where nothing is found.

    The order is DefaultAzureCredential's: the environment, workload and managed identity, the Azure CLI's login.
    """
    if azure.endpoint is not None and not any(map(os.environ.get, (AUTHORITY_VARIABLE, *IDENTITY_VARIABLES))):
        description = f"none: the server that {ENDPOINT} names is sent no credential that was found by default"
        return Login(description, None, lasts=True)
    known_login = _environment_login() or _cli_login() or _azure_machine_login()
    if known_login is not None:
        return known_login
    raise AuthFailed(
        f"There are no Azure credentials for account {azure.account} in this environment.",
        field="credentials",
        value=None,
        next="Run: az login (or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET).",
    )


def _azure_machine_login() -> Login | None:
    """Return the managed identity of this machine, where it is one of Azure's; None otherwise."""
    try:
        tag = _CHASSIS_TAG_FILE.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    description = "the managed identity of this machine, if it was given one; renewed by itself"
    return Login(description, None, lasts=True) if tag == _AZURE_CHASSIS_TAG else None


def _environment_login() -> Login | None:
    """Return the login that the environment names; None where the variables of none are all there."""
    found = ((text, lasts) for names, text, lasts in _LOGINS_BY_ENVIRONMENT if all(map(os.environ.get, names)))
    return next((Login(text, None, lasts) for text, lasts in found), None)


def _cli_login() -> Login | None:
    """Return the login of the Azure CLI, where its files have one.

    It is refreshed by itself while it is used at least every 90 days ("Refresh tokens in the Microsoft identity
    platform"), unless the organisation asks sooner.
    """
    folder = Path(os.environ.get(_CLI_FOLDER_VARIABLE) or "~/.azure").expanduser()
    names = ("msal_token_cache.json", "msal_token_cache.bin", "service_principal_entries.json")
    if not any((folder / name).is_file() for name in names):
        return None
    description = "a login of the Azure CLI, refreshed by itself until the organisation asks for it again"
    return Login(description, None, lasts=None)
