"""Firewall rules of ours on Google Cloud: what they are called, say and do. Pure; `access` does the talking.

One rule per network lets nobody in to machines that bear our network tag, ahead of what else the network allows (the
default network lets everybody open SSH). One rule per machine and label (`caller`, or a name given by `share`) comes
before it and lets one network open SSH on that machine alone. Rules bear no labels on Google Cloud: their description,
which is JSON, says whose they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cloudgpu.core.facts import TAG_ID, TAG_LEDGER
from cloudgpu.core.names import digest
from cloudgpu.core.network import ANYWHERE
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.request import NETWORK_TAG
from cloudgpu.providers.gcp.things import at

ALLOW_PRIORITY, DENY_PRIORITY = 100, 200  # the lower comes first; a network's own rules usually stand at 1000 and more
PREFIX = "cloudgpu-"
_LABEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_MACHINE = "machine"
_LABELLED = "label"
Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that lets one network open SSH on one machine (our id of it), for whom `label` says."""

    name: str
    machine: str
    label: str
    cidr: str
    ports: tuple[str, ...]
    tags: Mapping[str, str]
    made_at: datetime | None = None


def shut_name(network: str) -> str:
    """Return the name of the rule that lets nobody in: one per network (its whole name)."""
    return f"{PREFIX}shut-{digest(network)[:12]}"


def shut(network: str) -> dict[str, Any]:
    """Return the body of the rule that lets nobody in to machines with our network tag."""
    return {
        "name": shut_name(network),
        "description": json.dumps({"cloudgpu": "nobody gets in to machines of cloudgpu but by a rule of their own"}),
        "network": network,
        "direction": "INGRESS",
        "disabled": False,
        "priority": DENY_PRIORITY,
        "sourceRanges": [ANYWHERE],
        "targetTags": [NETWORK_TAG],
        "denied": [{"IPProtocol": "all"}],
    }


def is_shut(found: Raw) -> bool:
    """Say whether a rule that bears the right name does what it is there for."""
    return (
        not found.get("disabled")
        and int(found.get("priority", 0)) <= DENY_PRIORITY
        and ANYWHERE in found.get("sourceRanges", ())
        and NETWORK_TAG in found.get("targetTags", ())
        and any(one.get("IPProtocol") == "all" for one in found.get("denied", ()))
    )


def allow_name(machine: str, label: str) -> str:
    """Return the name of a rule: it follows from the machine (our id) and the label, so that a second make is none."""
    return f"{ids.machine(machine)[1][:40]}-{digest(machine, label)[:12]}"


def allow(network: str, machine: str, label: str, cidr: str, port: int, tags: Mapping[str, str]) -> dict[str, Any]:
    """Return the body of the rule that lets a network open SSH on one machine; InvalidRequest for what is no label."""
    if not _LABEL.fullmatch(label):
        raise InvalidRequest(
            f"{label!r} cannot label a rule.", field="label", value=label, next="Use a-z, 0-9, dot, _ and -."
        )
    kept = {key: tags[key] for key in (TAG_ID, TAG_LEDGER) if key in tags}
    return {
        "name": allow_name(machine, label),
        "description": json.dumps({_MACHINE: machine, _LABELLED: label, **kept}),
        "network": network,
        "direction": "INGRESS",
        "disabled": False,
        "priority": ALLOW_PRIORITY,
        "sourceRanges": [cidr],
        "targetTags": [ids.machine(machine)[1]],
        "allowed": [{"IPProtocol": "tcp", "ports": [str(port)]}],
    }


def rule(found: Raw) -> Rule | None:
    """Return the rule of ours that Google tells of; None for one that is not, or lets in to no machine of ours."""
    try:
        said = json.loads(found.get("description") or "")
    except ValueError:
        return None
    if not isinstance(said, dict) or not ids.split(str(said.get(_MACHINE))) or _LABELLED not in said:
        return None
    return Rule(
        name=found["name"],
        machine=said[_MACHINE],
        label=str(said[_LABELLED]),
        cidr=next(iter(found.get("sourceRanges", ())), ""),
        ports=tuple(port for one in found.get("allowed", ()) for port in one.get("ports", ())),
        tags={key: str(value) for key, value in said.items() if key.startswith(PREFIX)},
        made_at=at(found.get("creationTimestamp")),
    )
