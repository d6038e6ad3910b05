"""Reads machines: one by its id, or all of cloudgpu's in the project."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.instances import TAG_ID, Instance, Listing
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import Gcp
from cloudgpu.providers.gcp.compute import interruption, translate
from cloudgpu.providers.gcp.storage.resources import list_all_scopes

OUR_MACHINES_FILTER = f"labels.{TAG_ID}:*"


def get(gcp: Gcp, id: str) -> Instance:  # noqa: A002
    """Return the machine now; raise InstanceNotFound when Google has none.

    One call; a second one for a machine that has ended lately and whose reason is not known.
    """
    return instances(gcp, [read_machine(gcp, id)])[0]


def read_machine(gcp: Gcp, id: str) -> dict[str, Any]:  # noqa: A002
    """Return a machine in Google's format; raise InstanceNotFound when Google has none.

    Raises AuthFailed where the account's project is not the one that the machine was launched in.
    """
    gcp.project_pins.check(ids.zone_and_name(id)[1], lambda: gcp.project)
    return fetch_machine(gcp, id)


def fetch_machine(gcp: Gcp, id: str, **parameters: Any) -> dict[str, Any]:  # noqa: A002
    """Return a machine in Google's format, of the account's project unless another is given. One call."""
    zone, name = ids.zone_and_name(id)
    answer = gcp.call("compute.instances.get", zone, value=id, zone=zone, instance=name, **parameters)
    return {"zone": zone, "name": name, **answer}


def listed(gcp: Gcp) -> Listing:
    """Return every machine with a cloudgpu-id label, and the zones without an answer: a call per 500 machines.

    One more call for why machines have ended lately.
    """
    machines, unanswered = list_ours(gcp)
    return Listing(tuple(instances(gcp, machines)), (*unanswered, *other_projects(gcp)))


def list_ours(gcp: Gcp) -> tuple[list[Mapping[str, Any]], tuple[Unanswered, ...]]:
    """Return every machine with a cloudgpu-id label in Google's format, and the zones without an answer.

    Machines in zones that the settings leave out are included; these zones are not among the unanswered.
    """
    machines, unanswered = list_all_scopes(gcp, "instances", filter=OUR_MACHINES_FILTER)
    uses_zone = gcp.options.uses_zone
    ours = [machine for machine in machines if TAG_ID in machine.get("labels", {})]
    return ours, tuple(gap for gap in unanswered if ids.region_of(gap.scope) is None or uses_zone(gap.scope))


def instances(gcp: Gcp, raws: Iterable[Mapping[str, Any]]) -> list[Instance]:
    """Return machines in Google's format (`raws`) as `Instance`, with the reason why they ended."""
    machines, account, port = list(raws), gcp.account, gcp.options.ssh_port
    reasons = interruption.end_reasons(gcp, machines)
    return [
        translate.instance(machine, account=account, ssh_port=port, reason=reasons.get(translate.id_of(machine)))
        for machine in machines
    ]


# A project in which this account launched is reported as unanswered by every listing of another project, until a
# listing of it has found nothing of this ledger any more.


def record_project(gcp: Gcp, project: str) -> None:
    """Write down that there may be resources of this account in a project."""
    with suppress(OSError):  # a full disk, say: no reason to launch nothing
        _projects_dir(gcp).mkdir(mode=0o700, parents=True, exist_ok=True)
        (_projects_dir(gcp) / project).touch()


def forget_project(gcp: Gcp) -> None:
    """Forget that there may be resources in the account's project: a complete listing has found none."""
    with suppress(OSError):
        (_projects_dir(gcp) / gcp.project).unlink(missing_ok=True)


def other_projects(gcp: Gcp) -> tuple[Unanswered, ...]:
    """Return the account as unanswered for each other project that may have resources of it. No call."""
    if not _projects_dir(gcp).is_dir():
        return ()
    projects = sorted(file.name for file in _projects_dir(gcp).iterdir() if file.name != gcp.project)
    why = "it launched in the project {0}, and is of {1} now, where nothing is known of that; use {0} again to look"
    return tuple(Unanswered(gcp.account, why.format(project, gcp.project)) for project in projects)


def _projects_dir(gcp: Gcp) -> Path:
    return gcp.home / "projects"
