"""The table of a gcp account in config.toml."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.registry import read_table
from cloudgpu.providers.shared.options import matching, port, several

SSH_PORT = 22
DEFAULT_NETWORK = "default"
ENDPOINT_VARIABLE = "CLOUDGPU_GCP_ENDPOINT"
PROJECT_VARIABLE = "GOOGLE_CLOUD_PROJECT"
# As Google's discovery document spells a project: with a domain before a colon for an old one.
PROJECT_ID = re.compile(r"(?:[a-z0-9.-]{1,100}:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
_EMAIL = re.compile(r"[a-z0-9.-]+@[a-z0-9.-]+\.[a-z]+")


@dataclass(frozen=True, slots=True)
class GcpOptions:
    """The options of an account's table. `regions` and `zones` empty: all.

    `project` None: GOOGLE_CLOUD_PROJECT, else that of the credentials. `service_account` is an e-mail address; None:
    machines have none. `quota_project` is the project to which Google counts the calls, where not the same.
    """

    project: str | None = None
    regions: tuple[str, ...] = ()
    exclude_regions: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    network: str = DEFAULT_NETWORK
    ssh_port: int = SSH_PORT
    service_account: str | None = None
    quota_project: str | None = None

    def uses(self, region: str) -> bool:
        """Say whether the account uses a region, by its settings alone."""
        chosen_regions = self.regions or tuple(filter(None, map(ids.region_of, self.zones)))
        return region not in self.exclude_regions and (not chosen_regions or region in chosen_regions)

    def uses_zone(self, zone: str) -> bool:
        """Say whether the account uses a zone, by its settings alone."""
        region = ids.region_of(zone)
        return region is not None and self.uses(region) and (not self.zones or zone in self.zones)


def gcp_options(account: str, table: Mapping[str, Any]) -> GcpOptions:
    """Return the options of an account's table; raise InvalidRequest for the first unknown or wrong one."""
    return GcpOptions(**read_table("gcp", account, table, _READERS))


def project_of(options: GcpOptions) -> str | None:
    """Return the project that the settings or the environment name; None for neither.

    Raises InvalidRequest where the variable is not a project's id.
    """
    project_id = os.environ.get(PROJECT_VARIABLE) or None
    if options.project is not None or project_id is None:
        return options.project
    if PROJECT_ID.fullmatch(project_id):
        return project_id
    message = f"{PROJECT_VARIABLE} is {project_id!r}, which is not a project's id."
    raise InvalidRequest(message, field=PROJECT_VARIABLE, value=project_id, next="Write it like my-project-123.")


_region = matching(ids.REGION, "a region", "us-central1")
_project = matching(PROJECT_ID, "a project's id (its number and its title are others)", "my-lab-1")
_READERS = {  # what checks the value of each key
    "project": _project,
    "regions": several(_region, "regions", "us-central1"),
    "exclude_regions": several(_region, "regions", "us-central1"),
    "zones": several(matching(ids.ZONE, "a zone", "us-central1-a"), "zones", "us-central1-a"),
    "network": matching(ids.NAME, "a network's name", DEFAULT_NETWORK),
    "ssh_port": port,
    "service_account": matching(_EMAIL, "a service account's address", "me@my-lab-1.iam.gserviceaccount.com"),
    "quota_project": _project,
}
