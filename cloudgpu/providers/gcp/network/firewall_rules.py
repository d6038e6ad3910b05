"""cloudgpu's firewall rules on Google Cloud: their names, descriptions and bodies. Pure; `firewall` makes the calls.

One rule per network lets nobody in to machines with our network tag, ahead of what else the network allows (the
default network lets everybody open SSH). One rule per machine and label (`caller`, or a name given by `share`) comes
before it and lets one network open SSH on that machine alone. Rules have no labels on Google Cloud: their description,
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
from cloudgpu.providers.gcp.client import Raw
from cloudgpu.providers.gcp.compute.request import NETWORK_TAG
from cloudgpu.providers.gcp.storage.resources import parse_time
from cloudgpu.providers.shared.rules import OpenRule, is_open_to_all

ALLOW_PRIORITY, DENY_PRIORITY = 100, 200  # the lower one wins; a network's own rules usually have 1000 and more
PREFIX = "cloudgpu-"  # of the names of shared rules, and of the keys of tags
_LABEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_MACHINE_KEY, _LABEL_KEY = "machine", "label"  # of the JSON object in a rule's description


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that lets one CIDR open SSH on one machine (our id of it); `label` says for whom."""

    name: str
    machine: str
    label: str
    cidr: str
    ports: tuple[str, ...]
    tags: Mapping[str, str]
    made_at: datetime | None = None


def deny_rule_name(network: str) -> str:
    """Return the name of the rule that lets nobody in: one per network (its full name)."""
    return f"{PREFIX}shut-{digest(network)[:12]}"


def deny_rule(network: str) -> dict[str, Any]:
    """Return the body of the rule that lets nobody in to machines with our network tag."""
    return {
        "name": deny_rule_name(network),
        "description": json.dumps({"cloudgpu": "nobody gets in to machines of cloudgpu but by a rule of their own"}),
        "network": network,
        "direction": "INGRESS",
        "disabled": False,
        "priority": DENY_PRIORITY,
        "sourceRanges": [EVERYBODY],
        "targetTags": [NETWORK_TAG],
        "denied": [{"IPProtocol": "all"}],
    }


def is_deny_rule(raw: Raw) -> bool:
    """Say whether a rule of that name lets nobody in to our machines, as `deny_rule` does."""
    return (
        not raw.get("disabled")
        and int(raw.get("priority", 0)) <= DENY_PRIORITY
        and EVERYBODY in raw.get("sourceRanges", ())
        and NETWORK_TAG in raw.get("targetTags", ())
        and any(denied.get("IPProtocol") == "all" for denied in raw.get("denied", ()))
    )


def open_rules(
    raws: Sequence[Raw], network: str, project: str, service_account: str | None = None
) -> tuple[OpenRule, ...]:
    """Return the rules of a network, made by hand, that let everybody in to our machines ahead of `deny_rule`.

    They apply to all machines, to our network tag, to one machine's own tag, or to `service_account`, that of our
    machines. A rule that comes later has no effect. Firewall policies of a folder or an organisation are not read.
    """
    machine_names = {ids.zone_and_name(rule.machine)[1] for rule in map(parse_rule, raws) if rule is not None}

    def applies(raw: Raw) -> bool:
        tags, accounts = raw.get("targetTags", ()), raw.get("targetServiceAccounts", ())
        applies_to_all = not tags and not accounts
        return applies_to_all or bool({NETWORK_TAG, *machine_names}.intersection(tags)) or service_account in accounts

    name = ids.last_part(network)
    network_rules = [raw for raw in raws if ids.last_part(raw.get("network", "")) == name and parse_rule(raw) is None]
    return tuple(
        OpenRule(
            f"the firewall rule {raw['name']} of {name} lets everybody ({source}) reach {_ports(raw)}, ahead of the "
            "rule by which cloudgpu shuts its machines",
            f"gcloud compute firewall-rules delete {raw['name']} --project {project}",
        )
        for raw in network_rules
        for source in [next(filter(is_open_to_all, raw.get("sourceRanges", ())), "")]
        if source and _is_ahead(raw) and applies(raw)
    )


def _is_ahead(raw: Raw) -> bool:
    is_ingress = raw.get("direction", "INGRESS") == "INGRESS" and not raw.get("disabled")
    return is_ingress and bool(raw.get("allowed")) and int(raw.get("priority", 1000)) < DENY_PRIORITY


def _ports(raw: Raw) -> str:
    port_numbers = [str(port) for allowed in raw.get("allowed", ()) for port in allowed.get("ports", ())]
    opens_all_ports = any(not allowed.get("ports") for allowed in raw.get("allowed", ()))
    return "every port" if opens_all_ports else f"port {', '.join(port_numbers)}"


def allow_rule_name(machine_id: str, label: str) -> str:
    """Return the name of a rule: it follows from the machine (our id) and the label, so that there is one."""
    return f"{ids.zone_and_name(machine_id)[1][:40]}-{digest(machine_id, label)[:12]}"


def allow_rule(
    network: str, machine_id: str, label: str, cidr: str, port: int, tags: Mapping[str, str]
) -> dict[str, Any]:
    """Return the body of the rule that lets a CIDR open SSH on one machine; raise InvalidRequest for a bad label."""
    if not _LABEL.fullmatch(label):
        raise InvalidRequest(
            f"{label!r} cannot label a rule.", field="label", value=label, next="Use a-z, 0-9, dot, _ and -."
        )
    owner_tags = {key: tags[key] for key in (TAG_ID, TAG_LEDGER) if key in tags}
    return {
        "name": allow_rule_name(machine_id, label),
        "description": json.dumps({_MACHINE_KEY: machine_id, _LABEL_KEY: label, **owner_tags}),
        "network": network,
        "direction": "INGRESS",
        "disabled": False,
        "priority": ALLOW_PRIORITY,
        "sourceRanges": [cidr],
        "targetTags": [ids.zone_and_name(machine_id)[1]],
        "allowed": [{"IPProtocol": "tcp", "ports": [str(port)]}],
    }


def description_json(raw: Raw) -> Mapping[str, Any]:
    """Return the JSON object in a rule's description; empty for any other description."""
    try:
        parsed = json.loads(raw.get("description") or "")
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def parse_rule(raw: Raw) -> Rule | None:
    """Return a rule in Google's format as ours for one machine; None for any other rule."""
    description = description_json(raw)
    if not ids.parse(str(description.get(_MACHINE_KEY))) or _LABEL_KEY not in description:
        return None
    return Rule(
        name=raw["name"],
        machine=description[_MACHINE_KEY],
        label=str(description[_LABEL_KEY]),
        cidr=next(iter(raw.get("sourceRanges", ())), ""),
        ports=tuple(port for allowed in raw.get("allowed", ()) for port in allowed.get("ports", ())),
        tags={key: str(value) for key, value in description.items() if key.startswith(PREFIX)},
        made_at=parse_time(raw.get("creationTimestamp")),
    )
