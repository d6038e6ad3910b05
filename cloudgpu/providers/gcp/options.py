"""The table of a gcp account in config.toml."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.shared.options import matching, port, read_table, several

SSH_PORT = 22
NETWORK = "default"
ENDPOINT = "CLOUDGPU_GCP_ENDPOINT"
PROJECT_VARIABLE = "GOOGLE_CLOUD_PROJECT"
# As Google's discovery document spells a project: with a domain before a colon for an old one.
PROJECT = re.compile(r"(?:[a-z0-9.-]{1,100}:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
_NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_EMAIL = re.compile(r"[a-z0-9.-]+@[a-z0-9.-]+\.[a-z]+")


@dataclass(frozen=True, slots=True)
class GcpOptions:
    """What an account's table says. `regions` and `zones` empty: all.

    `project` None: GOOGLE_CLOUD_PROJECT, else that of the credentials. `service_account` is an e-mail address; None:
    machines have none. `quota_project` is whom Google bills the calls to, where that is not the project.
    """

    project: str | None = None
    regions: tuple[str, ...] = ()
    exclude_regions: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    network: str = NETWORK
    ssh_port: int = SSH_PORT
    service_account: str | None = None
    quota_project: str | None = None

    def uses(self, region: str) -> bool:
        """Say whether the account uses a region, by its settings alone."""
        named = self.regions or tuple(filter(None, map(ids.region_of, self.zones)))
        return region not in self.exclude_regions and (not named or region in named)

    def uses_zone(self, zone: str) -> bool:
        """Say whether the account uses a zone, by its settings alone."""
        region = ids.region_of(zone)
        return region is not None and self.uses(region) and (not self.zones or zone in self.zones)


def gcp_options(account: str, table: Mapping[str, Any]) -> GcpOptions:
    """Return the options of an account's table; raise InvalidRequest for the first that is none or cannot be."""
    return GcpOptions(**read_table("gcp", account, table, _READERS))


def project_of(options: GcpOptions) -> str | None:
    """Return the project that the settings or the environment name; None for neither.

    Raises InvalidRequest for a variable that holds no project.
    """
    named = os.environ.get(PROJECT_VARIABLE) or None
    if options.project is not None or named is None:
        return options.project
    if PROJECT.fullmatch(named):
        return named
    message = f"{PROJECT_VARIABLE} is {named!r}, which is not a project's id."
    raise InvalidRequest(message, field=PROJECT_VARIABLE, value=named, next="Write it like my-project-123.")


_region = matching(ids.REGION, "a region", "us-central1")
_project = matching(PROJECT, "a project's id (its number and its title are others)", "my-lab-1")
_READERS = {
    "project": _project,
    "regions": several(_region, "regions", "us-central1"),
    "exclude_regions": several(_region, "regions", "us-central1"),
    "zones": several(matching(ids.ZONE, "a zone", "us-central1-a"), "zones", "us-central1-a"),
    "network": matching(_NAME, "a network's name", NETWORK),
    "ssh_port": port,
    "service_account": matching(_EMAIL, "a service account's address", "me@my-lab-1.iam.gserviceaccount.com"),
    "quota_project": _project,
}
