"""Firewall rules of ours on Google Cloud: what they are called, say and do. Pure; `firewall` does the talking.

One rule per network lets nobody in to machines that bear our network tag, ahead of what else the network allows (the
default network lets everybody open SSH). One rule per machine and label (`caller`, or a name given by `share`) comes
before it and lets one network open SSH on that machine alone. Rules bear no labels on Google Cloud: their description,
which is JSON, says whose they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cloudgpu.core.model.instances import TAG_ID, TAG_LEDGER
from cloudgpu.core.values.naming import digest
from cloudgpu.core.values.network import EVERYBODY
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.compute.request import NETWORK_TAG
from cloudgpu.providers.gcp.storage.resources import parse_time
from cloudgpu.providers.shared.rules import OpenRule, is_open_to_all

ALLOW_PRIORITY, DENY_PRIORITY = 100, 200  # the lower comes first; a network's own rules usually stand at 1000 and more
PREFIX = "cloudgpu-"
_LABEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_MACHINE_KEY = "machine"
_LABEL_KEY = "label"
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
        "sourceRanges": [EVERYBODY],
        "targetTags": [NETWORK_TAG],
        "denied": [{"IPProtocol": "all"}],
    }


def is_shut(raw: Raw) -> bool:
    """Say whether a rule that bears the right name does what it is there for."""
    return (
        not raw.get("disabled")
        and int(raw.get("priority", 0)) <= DENY_PRIORITY
        and EVERYBODY in raw.get("sourceRanges", ())
        and NETWORK_TAG in raw.get("targetTags", ())
        and any(one.get("IPProtocol") == "all" for one in raw.get("denied", ()))
    )


def openings(raws: Sequence[Raw], network: str, project: str, acts_as: str | None = None) -> tuple[OpenRule, ...]:
    """Return the rules of a network, made by hand, that let everybody in to machines of ours ahead of our own `shut`.

    They apply to all machines, to our network tag, to one machine's own tag, or to the service account of our machines.
    A rule that comes later does nothing here. Firewall policies of a folder or an organisation are not read.
    """
    machines = {ids.machine(one.machine)[1] for one in map(rule, raws) if one is not None}

    def applies(raw: Raw) -> bool:
        tags, accounts = raw.get("targetTags", ()), raw.get("targetServiceAccounts", ())
        everything = not tags and not accounts
        return everything or bool({NETWORK_TAG, *machines}.intersection(tags)) or acts_as in accounts

    name = ids.last(network)
    here = [one for one in raws if ids.last(one.get("network", "")) == name and rule(one) is None]
    return tuple(
        OpenRule(
            f"the firewall rule {one['name']} of {name} lets everybody ({source}) reach {_ports(one)}, ahead of the "
            "rule by which cloudgpu shuts its machines",
            f"gcloud compute firewall-rules delete {one['name']} --project {project}",
        )
        for one in here
        for source in [next(filter(is_open_to_all, one.get("sourceRanges", ())), "")]
        if source and _is_ahead(one) and applies(one)
    )


def _is_ahead(raw: Raw) -> bool:
    inward = raw.get("direction", "INGRESS") == "INGRESS" and not raw.get("disabled")
    return inward and bool(raw.get("allowed")) and int(raw.get("priority", 1000)) < DENY_PRIORITY


def _ports(raw: Raw) -> str:
    named = [str(port) for part in raw.get("allowed", ()) for port in part.get("ports", ())]
    whole = any(not part.get("ports") for part in raw.get("allowed", ()))
    return "every port" if whole else f"port {', '.join(named)}"


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
        "description": json.dumps({_MACHINE_KEY: machine, _LABEL_KEY: label, **kept}),
        "network": network,
        "direction": "INGRESS",
        "disabled": False,
        "priority": ALLOW_PRIORITY,
        "sourceRanges": [cidr],
        "targetTags": [ids.machine(machine)[1]],
        "allowed": [{"IPProtocol": "tcp", "ports": [str(port)]}],
    }


def stored_in(raw: Raw) -> Mapping[str, Any]:
    """Return what the description of a rule says, as JSON; empty for what is no object of JSON."""
    try:
        stored = json.loads(raw.get("description") or "")
    except ValueError:
        return {}
    return stored if isinstance(stored, dict) else {}


def rule(raw: Raw) -> Rule | None:
    """Return the rule of ours that Google tells of; None for one that is not, or lets in to no machine of ours."""
    stored = stored_in(raw)
    if not ids.split(str(stored.get(_MACHINE_KEY))) or _LABEL_KEY not in stored:
        return None
    return Rule(
        name=raw["name"],
        machine=stored[_MACHINE_KEY],
        label=str(stored[_LABEL_KEY]),
        cidr=next(iter(raw.get("sourceRanges", ())), ""),
        ports=tuple(port for one in raw.get("allowed", ()) for port in one.get("ports", ())),
        tags={key: str(value) for key, value in stored.items() if key.startswith(PREFIX)},
        made_at=parse_time(raw.get("creationTimestamp")),
    )
