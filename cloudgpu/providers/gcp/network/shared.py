"""What the machines of one cluster share on Google Cloud: a firewall rule by which they reach each other.

It lets in whatever comes from a machine with the cluster's network tag, on every port, and comes before the rule that
lets nobody in. A tag stands for addresses inside the network alone, and only who may change machines can set it ("VPC
firewall rules", source tags). A rule costs nothing, but Google deletes one that machines use, too: so its users are
looked up before each deletion.
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
from cloudgpu.providers.gcp.client import Gcp, Raw
from cloudgpu.providers.gcp.compute import listing
from cloudgpu.providers.gcp.compute.request import Call, cluster_tag
from cloudgpu.providers.gcp.compute.translate import id_of
from cloudgpu.providers.gcp.network import firewall
from cloudgpu.providers.gcp.network.firewall_rules import ALLOW_PRIORITY, PREFIX, description_json
from cloudgpu.providers.gcp.storage.resources import parse_time

_CLUSTER_KEY, _REGION_KEY = "cluster", "region"  # of the JSON object in a rule's description


@dataclass(frozen=True, slots=True)
class ClusterRule:
    """The rule of a cluster (`ClusterNode.id`) in a region: its name, which is the network tag, and whose it is."""

    name: str
    cluster: str
    region: str
    tags: Mapping[str, str]
    made_at: datetime | None = None


def make_shared(gcp: Gcp, attempt: Attempt, call: Call) -> None:
    """Make sure that the machines of this attempt's cluster reach each other; nothing for a single machine.

    One call where they do already. Nothing where the user's own firewall rules decide. Raises InvalidRequest where a
    rule of that name was changed, so that it could let others in.
    """
    body = cluster_rule_body(attempt, call)
    if body is None:
        return
    project = firewall.project_of(call.network)
    existing = firewall.find_rule(gcp, project, body["name"])
    if existing is None:
        _record_host_project(gcp, project)
        firewall.write_rule(gcp, project, body)
    elif not _is_as_made(existing, body):
        raise InvalidRequest(
            f"The firewall rule {body['name']} is not as cloudgpu makes it: somebody has changed it.",
            field="--nodes",
            value=body["name"],
            next=f"Delete it, and run the same up again: gcloud compute firewall-rules delete {body['name']} "
            f"--project {project or gcp.project}",
        )


def cluster_rule_body(attempt: Attempt, call: Call) -> dict[str, Any] | None:
    """Return the body of the rule of an attempt's cluster; None where there is none to make. Pure."""
    tag, node = cluster_tag(attempt, call), node_of_tags(attempt.tags)
    if tag is None or node is None:
        return None
    owner_tags = {TAG_ID: node_name(node.id, 0)} | {
        key: attempt.tags[key] for key in (TAG_LEDGER, TAG_OWNER, TAG_CLUSTER) if key in attempt.tags
    }
    return {
        "name": tag,
        "description": json.dumps({_CLUSTER_KEY: node.id, _REGION_KEY: ids.region_of(call.zone), **owner_tags}),
        "network": call.network,
        "direction": "INGRESS",
        "disabled": False,
        "priority": ALLOW_PRIORITY,
        "sourceTags": [tag],
        "targetTags": [tag],
        "allowed": [{"IPProtocol": "all"}],
    }


def _is_as_made(raw: Raw, body: Raw) -> bool:
    """Say whether an existing rule lets the cluster's machines in, and nobody else, as `body` does."""
    is_same = all(raw.get(key) == body[key] for key in ("direction", "priority", "sourceTags", "targetTags"))
    opens_all_ports = any(allowed.get("IPProtocol") == "all" for allowed in raw.get("allowed", ()))
    return is_same and opens_all_ports and not raw.get("disabled") and not raw.get("sourceRanges")


def parse_cluster_rule(raw: Raw) -> ClusterRule | None:
    """Return a rule in Google's format as that of a cluster; None for any other rule."""
    description = description_json(raw)
    if _CLUSTER_KEY not in description or TAG_ID not in description:
        return None
    tags = {key: str(value) for key, value in description.items() if key.startswith(PREFIX)}
    return ClusterRule(
        raw["name"],
        str(description[_CLUSTER_KEY]),
        str(description.get(_REGION_KEY)),
        tags,
        parse_time(raw.get("creationTimestamp")),
    )


def cluster_rules(gcp: Gcp, project: str = "") -> list[ClusterRule]:
    """Return all rules of clusters in a project (empty: the account's): a call per 500 rules of the project."""
    return [rule for rule in map(parse_cluster_rule, firewall.list_rules(gcp, project)) if rule is not None]


def machine_using(rule: ClusterRule, machines: Iterable[Raw], unanswered: Sequence[Unanswered]) -> str | None:
    """Return our id of a machine that uses a rule; else a zone or region that did not answer and may have one."""
    for machine in machines:
        if rule.name in machine.get("tags", {}).get("items", ()):
            return id_of(machine)
    return next((gap.scope for gap in unanswered if ids.region_of(gap.scope) in (None, rule.region)), None)


def clear_shared(gcp: Gcp, cluster: str, region: str) -> bool:
    """Ask to delete a cluster's rules; return whether there were none. A rule that a machine uses stays, without error.

    A call for the rules; where there are some, one per 500 machines, and one for each rule that nobody uses.
    """
    rules = [
        (project, rule)
        for project in ("", *_host_projects(gcp))
        for rule in cluster_rules(gcp, project)
        if (rule.cluster, rule.region) == (cluster, region)
    ]
    if rules:
        machines, unanswered = listing.list_ours(gcp)
        for project, rule in rules:
            if machine_using(rule, machines, unanswered) is None:
                firewall.start_removal(gcp, project, rule.name)
    return not rules


# The rules of a shared VPC are in its host project, which is listed, too, once a rule was made there.


def _record_host_project(gcp: Gcp, project: str) -> None:
    if project not in ("", gcp.project):
        with suppress(OSError):  # a full disk, say: the rule costs nothing
            (gcp.home / "host-projects").mkdir(mode=0o700, parents=True, exist_ok=True)
            (gcp.home / "host-projects" / project).touch()


def _host_projects(gcp: Gcp) -> list[str]:
    directory = gcp.home / "host-projects"
    return sorted(file.name for file in directory.iterdir()) if directory.is_dir() else []
