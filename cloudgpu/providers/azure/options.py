"""The table of an azure account in config.toml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloudgpu.providers.azure.ids import GUID, LOCATION, SUBSCRIPTION
from cloudgpu.providers.tables import flag, matching, port, read_table, several, text

SSH_PORT = 22
_ROLE = re.compile(
    rf"(?:/subscriptions/{GUID})?/providers/Microsoft\.Authorization/roleDefinitions/{GUID}", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class AzureOptions:
    """What an account's table says. `regions` empty: those in which the catalogue has a price of what is wanted.

    `subscription` empty: that of AZURE_SUBSCRIPTION_ID. `machine_role` is the id of the role definition that lets a
    machine deallocate and tag itself (None: machines have no identity). `timers`: the subscription may use scheduled
    actions. `encryption_at_host`: it has that feature, and machines are launched with it.
    """

    subscription: str | None = None
    tenant: str | None = None
    regions: tuple[str, ...] = ()
    exclude_regions: tuple[str, ...] = ()
    ssh_port: int = SSH_PORT
    machine_role: str | None = None
    timers: bool = False
    encryption_at_host: bool = False


def azure_options(account: str, table: Mapping[str, Any]) -> AzureOptions:
    """Return the options of an account's table; raise InvalidRequest for the first that is none or cannot be."""
    return AzureOptions(**read_table("azure", account, table, _READERS))


_region = matching(LOCATION, "a region", "eastus")
_regions = several(_region, "regions", "eastus")
_READERS = {
    "subscription": matching(SUBSCRIPTION, "a subscription's id", '"00000000-0000-0000-0000-000000000000"'),
    "tenant": text,
    "regions": _regions,
    "exclude_regions": _regions,
    "ssh_port": port,
    "machine_role": matching(
        _ROLE, "a role definition's id", "/subscriptions/.../roleDefinitions/...: cloudgpu init azure does"
    ),
    "timers": flag,
    "encryption_at_host": flag,
}
