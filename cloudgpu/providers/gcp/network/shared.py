"""What the machines of one cluster share on Google Cloud: a firewall rule by which they reach each other.

It lets in whatever comes from a machine with the cluster's network tag, on every port, and comes before the rule that
shuts our machines. A tag stands for the addresses inside the network alone, and only who may change machines can give
it ("VPC firewall rules", source tags). A rule costs nothing, but Google takes it away from machines that run, too: so
whoever does has to look first who uses it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cloudgpu.core.model.cluster import node_name, node_of_tags
from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.instances import TAG_CLUSTER, TAG_ID, TAG_LEDGER, TAG_OWNER
from cloudgpu.core.model.launch import Attempt
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import Gcp
from cloudgpu.providers.gcp.compute import listing
from cloudgpu.providers.gcp.compute.request import Call, cluster_tag
from cloudgpu.providers.gcp.compute.translate import id_of
from cloudgpu.providers.gcp.network import firewall
from cloudgpu.providers.gcp.network.firewall_rules import ALLOW_PRIORITY, PREFIX, stored_in
from cloudgpu.providers.gcp.storage.resources import parse_time

Raw = Mapping[str, Any]
_CLUSTER, _REGION = "cluster", "region"


@dataclass(frozen=True, slots=True)
class ClusterRule:
    """The rule of a cluster (`ClusterNode.id`) in a region: its name, which is the network tag, and whose it is."""

    name: str
    cluster: str
    region: str
    tags: Mapping[str, str]
    made_at: datetime | None = None


def make_shared(gcp: Gcp, attempt: Attempt, call: Call) -> None:
    """Make sure that the machines of this attempt's cluster reach each other; nothing for a machine of its own.

    One call where they do already. Nothing where somebody else's firewall rules decide. Raises InvalidRequest where a
    rule of that name is another one, which could let others in.
    """
    wanted = rule(attempt, call)
    if wanted is None:
        return
    project = firewall.project_of(call.network)
    found = firewall.find_rule(gcp, project, wanted["name"])
    if found is None:
        _record_host_project(gcp, project)
        firewall.write_rule(gcp, project, wanted)
    elif not _is_as_wanted(found, wanted):
        raise InvalidRequest(
            f"The firewall rule {wanted['name']} is not as cloudgpu makes it: somebody has changed it.",
            field="--nodes",
            value=wanted["name"],
            next=f"Delete it, and run the same up again: gcloud compute firewall-rules delete {wanted['name']} "
            f"--project {project or gcp.project}",
        )


def rule(attempt: Attempt, call: Call) -> dict[str, Any] | None:
    """Return the body of the rule of an attempt's cluster; None where there is none to make. Pure."""
    tag, node = cluster_tag(attempt, call), node_of_tags(attempt.tags)
    if tag is None or node is None:
        return None
    kept = {TAG_ID: node_name(node.id, 0)} | {
        key: attempt.tags[key] for key in (TAG_LEDGER, TAG_OWNER, TAG_CLUSTER) if key in attempt.tags
    }
    return {
        "name": tag,
        "description": json.dumps({_CLUSTER: node.id, _REGION: ids.region_of(call.zone), **kept}),
        "network": call.network,
        "direction": "INGRESS",
        "disabled": False,
        "priority": ALLOW_PRIORITY,
        "sourceTags": [tag],
        "targetTags": [tag],
        "allowed": [{"IPProtocol": "all"}],
    }


def _is_as_wanted(raw: Raw, wanted: Raw) -> bool:
    """Say whether a rule of that name lets the members in, and nobody else."""
    same = all(raw.get(key) == wanted[key] for key in ("direction", "priority", "sourceTags", "targetTags"))
    opens = any(one.get("IPProtocol") == "all" for one in raw.get("allowed", ()))
    return same and opens and not raw.get("disabled") and not raw.get("sourceRanges")


def read(raw: Raw) -> ClusterRule | None:
    """Return the rule of a cluster of ours that Google tells of; None for any other rule."""
    stored = stored_in(raw)
    if _CLUSTER not in stored or TAG_ID not in stored:
        return None
    tags = {key: str(value) for key, value in stored.items() if key.startswith(PREFIX)}
    return ClusterRule(
        raw["name"], str(stored[_CLUSTER]), str(stored.get(_REGION)), tags, parse_time(raw.get("creationTimestamp"))
    )


def all_shared(gcp: Gcp, project: str = "") -> list[ClusterRule]:
    """Return all rules of clusters in a project, ours for none: a call per 500 rules that it has."""
    return [one for one in map(read, firewall.listed(gcp, project)) if one is not None]


def user_of(one: ClusterRule, machines: Iterable[Raw], silent: Sequence[Unanswered]) -> str | None:
    """Return our id of a machine that a rule lets others in to; where part of Google was silent, what that was."""
    for machine in machines:
        if one.name in machine.get("tags", {}).get("items", ()):
            return id_of(machine)
    return next((gap.scope for gap in silent if ids.region_of(gap.scope) in (None, one.region)), None)


def clear_shared(gcp: Gcp, cluster: str, region: str) -> bool:
    """Ask to take a cluster's rules away; return whether a look found none. What a machine uses stays, and is no error.

    A call for the rules; where there are some, one per 500 machines, and one for each rule that nobody uses.
    """
    found = [
        (project, one)
        for project in ("", *_host_projects(gcp))
        for one in all_shared(gcp, project)
        if (one.cluster, one.region) == (cluster, region)
    ]
    if found:
        machines, silent = listing.list_ours(gcp)
        for project, one in found:
            if user_of(one, machines, silent) is None:
                firewall.start_removal(gcp, project, one.name)
    return not found


# The rules of a shared network lie in another project, which is asked for them, too, once one was made there.


def _record_host_project(gcp: Gcp, project: str) -> None:
    if project not in ("", gcp.project):
        with suppress(OSError):  # a full disk, say: the rule costs nothing
            (gcp.home / "host-projects").mkdir(mode=0o700, parents=True, exist_ok=True)
            (gcp.home / "host-projects" / project).touch()


def _host_projects(gcp: Gcp) -> list[str]:
    directory = gcp.home / "host-projects"
    return sorted(file.name for file in directory.iterdir()) if directory.is_dir() else []
