"""Networks and their firewall rules, and who really gets in; static addresses.

The default network has the rules that Google puts there, among them SSH from anywhere. Rules are read by priority,
the lowest number first; of two with the same, the one that denies wins; what no rule allows is denied (VPC firewall
rules, Priority).
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from tests.clouds.gcp import operations, resources
from tests.clouds.gcp.handlers import Asked, answers
from tests.clouds.gcp.model import PROJECT, ROOT, Key, Model, Thing, key_of, linked, with_labels
from tests.clouds.gcp.stock import ZONES
from tests.clouds.rest import Refusal

DEFAULT = Key("networks", PROJECT, "global", "default")
HIGHEST, USUAL = 65535, 1000
_TAG = re.compile("[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def furnish(model: Model) -> None:
    """Put in the default network, its parts in each region, and the rules that come with it."""
    model.add(DEFAULT, {"autoCreateSubnetworks": True, "subnetworks": [], "mtu": 1460})
    for number, region in enumerate(ZONES):
        key = Key("subnetworks", PROJECT, f"regions/{region}", "default")
        block = ipaddress.ip_network((int(ipaddress.ip_address("10.128.0.0")) + number * 4096 * 16, 20))
        model.add(key, {"network": DEFAULT.link, "ipCidrRange": str(block), "gatewayAddress": str(block[1])})
        model.resources[DEFAULT]["subnetworks"].append(key.link)
    for name, ranges, allowed in (
        ("default-allow-icmp", "0.0.0.0/0", [{"IPProtocol": "icmp"}]),
        ("default-allow-internal", "10.128.0.0/9", [{"IPProtocol": "tcp", "ports": ["0-65535"]}]),
        ("default-allow-rdp", "0.0.0.0/0", [{"IPProtocol": "tcp", "ports": ["3389"]}]),
        ("default-allow-ssh", "0.0.0.0/0", [{"IPProtocol": "tcp", "ports": ["22"]}]),
    ):
        rule = {"network": DEFAULT.link, "priority": 65534, "sourceRanges": [ranges], "allowed": allowed}
        model.add(Key("firewalls", PROJECT, "global", name), {**rule, "direction": "INGRESS", "disabled": False})


def allows(model: Model, machine: Thing, address: str, port: int) -> bool:
    """Say whether TCP from an address reaches a port of a machine."""
    tags = set(machine.get("tags", {}).get("items", []))
    networks = {one["network"] for one in machine["networkInterfaces"]}
    rules = [
        one
        for one in model.of("firewalls").values()
        if one["network"] in networks and _means(model, one, tags, address)
    ]
    told = [one for one in rules if any(_covers(part, port) for part in _parts(one))]
    first = min(told, key=lambda one: (one["priority"], "denied" not in one), default=None)
    return first is not None and "allowed" in first


def _means(model: Model, rule: Thing, tags: set[str], address: str) -> bool:
    aimed = not rule.get("targetTags") or bool(tags & set(rule["targetTags"]))
    ranges = [ipaddress.ip_network(one) for one in rule.get("sourceRanges", [])]
    from_there = any(one.version == 4 and ipaddress.ip_address(address) in one for one in ranges)
    return (
        rule["direction"] == "INGRESS"
        and not rule["disabled"]
        and aimed
        and (from_there or _bears(model, rule, address))
    )


def _bears(model: Model, rule: Thing, address: str) -> bool:
    """Say whether an inside address is a machine's with a source tag, in the rule's network (source tags)."""
    wanted = set(rule.get("sourceTags", []))
    return any(
        wanted & set(one.get("tags", {}).get("items", []))
        and any(
            card["networkIP"] == address and card["network"] == rule["network"] for card in one["networkInterfaces"]
        )
        for one in (model.of("instances").values() if wanted else ())
    )


def _parts(rule: Thing) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rule.get("denied") or rule.get("allowed") or []
    return found


def _covers(part: dict[str, Any], port: int) -> bool:
    if part["IPProtocol"] not in {"tcp", "6", "all"}:
        return False
    bounds = [one.partition("-") for one in part.get("ports", [])]
    return not bounds or any(int(low) <= port <= int(high or low) for low, _, high in bounds)


@answers("compute.firewalls.insert")
def insert(asked: Asked) -> Thing:
    """Make a rule. Without any source it is for everywhere (firewalls, sourceRanges)."""
    key = key_of(asked.call, "firewalls", asked.body["name"])
    made = _rule(asked.model, asked.body)
    asked.model.add(key, made)
    return operations.begin(asked.model, asked.call, key, "insert")


def _rule(model: Model, body: dict[str, Any]) -> Thing:
    network = linked(body.get("network") or "global/networks/default", "networks")
    model.get(network)
    made: Thing = {name: one for name, one in body.items() if name not in {"id", "kind", "selfLink", "network"}}
    made |= {"network": network.link, "priority": body.get("priority", USUAL), "disabled": body.get("disabled", False)}
    made["direction"] = body.get("direction", "INGRESS")
    if bool(body.get("allowed")) == bool(body.get("denied")):
        raise Refusal("invalid", "Exactly one of 'allowed' and 'denied' must be specified")
    if not 0 <= made["priority"] <= HIGHEST:
        raise Refusal("invalid", f"Invalid value for field 'resource.priority': '{made['priority']}'")
    if not any(body.get(name) for name in ("sourceRanges", "sourceTags", "sourceServiceAccounts")):
        made["sourceRanges"] = ["0.0.0.0/0"]
    for one in made.get("sourceRanges", []):
        _check_range(one)
    for name, most in (("sourceTags", 30), ("targetTags", 70)):  # VPC quotas and limits, per firewall rule
        if len(made.get(name, [])) > most or any(not _TAG.fullmatch(one) for one in made.get(name, [])):
            raise Refusal("invalid", f"Invalid value for field 'resource.{name}': '{made[name]}'")
    return made


def _check_range(text: str) -> None:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        said = f"'{text}'. Must be a valid CIDR address range."
        raise Refusal("invalid", f"Invalid value for field 'resource.sourceRanges[0]': {said}") from None


@answers("compute.firewalls.patch", "compute.firewalls.update")
def change(asked: Asked) -> Thing:
    """Change a rule: `patch` the named fields, `update` all of them."""
    key, rule = resources.own(asked, "firewalls")
    whole = asked.call.action.endswith("update")
    kept = {name: rule[name] for name in ("id", "kind", "selfLink", "creationTimestamp", "name")}
    made = _rule(asked.model, {**({} if whole else rule), **asked.body})
    rule.clear()
    rule.update({**made, **kept})
    return operations.begin(asked.model, asked.call, key, "update" if whole else "patch")


@answers("compute.networks.insert")
def insert_network(asked: Asked) -> Thing:
    """Make a network; without `autoCreateSubnetworks` it has no parts yet."""
    key = key_of(asked.call, "networks", asked.body["name"])
    auto = asked.body.get("autoCreateSubnetworks", True)
    network = asked.model.add(key, {"autoCreateSubnetworks": auto, "subnetworks": [], "mtu": 1460})
    for region in ZONES if auto else ():
        part = Key("subnetworks", key.project, f"regions/{region}", key.name)
        asked.model.add(part, {"network": key.link, "ipCidrRange": "10.128.0.0/20"})
        network["subnetworks"].append(part.link)
    return operations.begin(asked.model, asked.call, key, "insert")


@answers("compute.subnetworks.insert")
def insert_subnetwork(asked: Asked) -> Thing:
    """Make a part of a network in a region."""
    key = key_of(asked.call, "subnetworks", asked.body["name"])
    network = linked(asked.body["network"], "networks")
    made = {"network": network.link, "ipCidrRange": asked.body["ipCidrRange"]}
    asked.model.add(key, made)
    asked.model.get(network)["subnetworks"].append(key.link)
    return operations.begin(asked.model, asked.call, key, "insert")


@answers("compute.firewalls.delete", "compute.networks.delete", "compute.subnetworks.delete")
def delete(asked: Asked) -> Thing:
    """Delete a rule, or a network that nothing uses."""
    key, _ = resources.own(asked, asked.call.action.split(".")[1])
    using = [one for kind in ("firewalls", "instances") for one in asked.model.of(kind).values() if _uses(one, key)]
    if key.collection != "firewalls" and using:
        path = using[0]["selfLink"].removeprefix(f"{ROOT}/")
        sentence = f"The {key.collection.removesuffix('s')} resource '{key.path}' is already being used by '{path}'"
        raise Refusal("resourceInUseByAnotherResource", sentence)
    return operations.begin(asked.model, asked.call, key, "delete", lambda: resources.delete(asked.model, key))


def _uses(one: Thing, key: Key) -> bool:
    places = [one, *one.get("networkInterfaces", [])]
    return any(place.get(singular) == key.link for place in places for singular in ("network", "subnetwork"))


@answers("compute.addresses.insert", "compute.globalAddresses.insert")
def insert_address(asked: Asked) -> Thing:
    """Reserve an address. That labels cannot be set here, only afterwards, is from the SDK's documentation."""
    key = key_of(asked.call, "addresses", asked.body["name"])
    made = {"address": asked.model.addresses()[0], "status": "RESERVED", "addressType": "EXTERNAL", "users": []}
    address = asked.model.add(key, made)
    with_labels(address, None)
    return operations.begin(asked.model, asked.call, key, "insert")


@answers("compute.addresses.delete", "compute.globalAddresses.delete")
def delete_address(asked: Asked) -> Thing:
    """Give an address back."""
    key, address = resources.own(asked, "addresses")
    if address["users"]:
        raise Refusal("resourceInUseByAnotherResource", f"The address resource '{key.path}' is already being used")
    return operations.begin(asked.model, asked.call, key, "delete", lambda: resources.delete(asked.model, key))
