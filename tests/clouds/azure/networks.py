"""Networks: security groups and who gets through them, virtual networks, public addresses, interfaces.

A security group's rules are weighed by priority, its default rules last; a standard public address without a security
group lets nobody in (documentation of network security groups, and of public addresses).
"""

from __future__ import annotations

import copy
import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any

from tests.clouds.azure.handlers import answers, check_tags, settled
from tests.clouds.azure.model import ADDRESSES, INTERFACES, Ask, Model, Thing
from tests.clouds.azure.operations import begin
from tests.clouds.rest import Refusal, Reply

DEFAULTS = (
    ("AllowVnetInBound", 65000, "Allow", "Inbound", "VirtualNetwork", "VirtualNetwork"),
    ("AllowAzureLoadBalancerInBound", 65001, "Allow", "Inbound", "AzureLoadBalancer", "*"),
    ("DenyAllInBound", 65500, "Deny", "Inbound", "*", "*"),
    ("AllowVnetOutBound", 65000, "Allow", "Outbound", "VirtualNetwork", "VirtualNetwork"),
    ("AllowInternetOutBound", 65001, "Allow", "Outbound", "*", "Internet"),
    ("DenyAllOutBound", 65500, "Deny", "Outbound", "*", "*"),
)


def _made(model: Model, ask: Ask, body: dict[str, Any]) -> Reply:
    """Keep what a PUT says and answer it; with a dwell `network` its end is looked for at an operation's address."""
    check_tags(body.get("tags"))
    status = 200 if ask.id.lower() in model.resources else 201
    thing = model.put(ask.id, body)
    if not model.clock.dwell_s.get("network"):
        return Reply(status, copy.deepcopy(thing.body))
    thing.facts["provisioningState"] = "Updating"
    shown = copy.deepcopy(thing.body)
    return begin(model, ask, "network", lambda: _succeed(thing), status=status, body=shown)


def _succeed(thing: Thing) -> None:
    thing.facts["provisioningState"] = "Succeeded"


@answers("NetworkSecurityGroups.CreateOrUpdate")
def put_security_group(model: Model, ask: Ask) -> Reply:
    """Make or replace one with its rules; rules that are not named any more go."""
    model.living_group(ask.id)
    rules = (ask.body.get("properties") or {}).get("securityRules") or []
    for key in [key for key in model.resources if key.startswith(f"{ask.id.lower()}/securityrules/")]:
        model.drop(key)
    for rule in rules:
        _put_rule(model, f"{ask.id}/securityRules/{rule['name']}", rule)
    reply = _made(model, ask, settled(ask.body, model.now(), resourceGuid=model.uuid("nsg")))
    refresh(model, ask.id)
    shown = copy.deepcopy(model.get(ask.id).body)
    return Reply(reply.status, shown, reply.headers)


@answers("SecurityRules.CreateOrUpdate")
def put_rule(model: Model, ask: Ask) -> Reply:
    owner = model.get(ask.id.rpartition("/securityRules/")[0])
    status = 200 if ask.id.lower() in model.resources else 201
    _put_rule(model, ask.id, ask.body)
    refresh(model, owner.id)
    return Reply(status, copy.deepcopy(model.get(ask.id).body))


def _put_rule(model: Model, id_: str, rule: dict[str, Any]) -> None:
    facts = rule.get("properties") or {}
    for name in ("protocol", "access", "direction", "priority"):
        if name not in facts:
            raise Refusal("SecurityRuleParameterNotSpecified", f"Required security rule parameters are missing: {name}")
    if not 100 <= facts["priority"] <= 4096:
        raise Refusal("SecurityRuleInvalidPriority", f"Security rule has an invalid priority: {facts['priority']}.")
    owner = id_.lower().rpartition("/securityrules/")[0]
    for other in _rules(model, owner):
        same = (other.facts["priority"], other.facts["direction"]) == (facts["priority"], facts["direction"])
        if same and other.id.lower() != id_.lower():
            sentence = f"Security rule {rule.get('name')} conflicts with rule {other.name}: the same priority."
            raise Refusal("SecurityRuleConflict", sentence)
    list(_networks(facts))  # what is no address is refused now
    model.put(id_, settled(rule, model.now()))


@answers("SecurityRules.Delete")
def delete_rule(model: Model, ask: Ask) -> Reply:
    owner = ask.id.rpartition("/securityRules/")[0]
    if ask.id.lower() not in model.resources:
        return Reply(204)
    model.drop(ask.id)
    refresh(model, owner)
    return Reply(200)


def _rules(model: Model, id_: str) -> Iterator[Thing]:
    for key, one in list(model.resources.items()):
        if key.startswith(f"{id_.lower()}/securityrules/"):
            yield one


def refresh(model: Model, id_: str) -> None:
    """Write into a security group what rules it has, and who uses it."""
    group = model.get(id_)
    group.facts["securityRules"] = [copy.deepcopy(one.body) for one in _rules(model, id_)]
    group.facts["defaultSecurityRules"] = [_default(group, *one) for one in DEFAULTS]
    users = [one for one in model.of_kind(INTERFACES) if _names(one.facts.get("networkSecurityGroup"), group)]
    group.facts.pop("networkInterfaces", None)
    if users:
        group.facts["networkInterfaces"] = [{"id": one.id} for one in users]


def refresh_those_of(model: Model, interfaces: Iterable[Thing]) -> None:
    """Write into the security groups of interfaces who uses them now."""
    named = {(one.facts.get("networkSecurityGroup") or {}).get("id", "").lower() for one in interfaces}
    for id_ in named & set(model.resources):
        refresh(model, id_)


def _default(
    group: Thing, name: str, priority: int, access: str, direction: str, source: str, target: str
) -> dict[str, Any]:
    facts = {
        "access": access,
        "direction": direction,
        "priority": priority,
        "protocol": "*",
        "sourceAddressPrefix": source,
        "sourcePortRange": "*",
        "destinationAddressPrefix": target,
        "destinationPortRange": "*",
        "provisioningState": "Succeeded",
    }
    return {"id": f"{group.id}/defaultSecurityRules/{name}", "name": name, "properties": facts}


@answers("VirtualNetworks.CreateOrUpdate")
def put_network(model: Model, ask: Ask) -> Reply:
    model.living_group(ask.id)
    subnets = (ask.body.get("properties") or {}).get("subnets") or []
    for subnet in subnets:
        id_ = f"{ask.id}/subnets/{subnet['name']}"
        model.put(id_, settled(subnet, model.now()))
    body = settled(ask.body, model.now(), resourceGuid=model.uuid("vnet"))
    if subnets:
        shown = [copy.deepcopy(model.get(f"{ask.id}/subnets/{one['name']}").body) for one in subnets]
        body["properties"]["subnets"] = shown
    return _made(model, ask, body)


@answers("Subnets.CreateOrUpdate")
def put_subnet(model: Model, ask: Ask) -> Reply:
    network = model.get(ask.id.rpartition("/subnets/")[0])
    reply = _made(model, ask, settled(ask.body, model.now()))
    others = [one for one in network.facts.get("subnets", []) if one["id"].lower() != ask.id.lower()]
    network.facts["subnets"] = [*others, copy.deepcopy(model.get(ask.id).body)]
    return reply


@answers("PublicIPAddresses.CreateOrUpdate")
def put_address(model: Model, ask: Ask) -> Reply:
    model.living_group(ask.id)
    there = model.resources.get(ask.id.lower())
    number = there.facts["ipAddress"] if there else model.address()
    return _made(model, ask, settled(ask.body, model.now(), ipAddress=number, resourceGuid=model.uuid("ip")))


@answers("NetworkInterfaces.CreateOrUpdate")
def put_interface(model: Model, ask: Ask) -> Reply:
    model.living_group(ask.id)
    there = model.resources.get(ask.id.lower())
    body = settled(ask.body, model.now())
    if there is not None and there.facts.get("virtualMachine"):
        body["properties"]["virtualMachine"] = there.facts["virtualMachine"]
    reply = _made(model, ask, body)
    refresh_those_of(model, [model.get(ask.id)])
    return reply


@answers("NetworkSecurityGroups.Delete")
def delete_security_group(model: Model, ask: Ask) -> Reply:
    users = [one for one in model.of_kind(INTERFACES) if _names(one.facts.get("networkSecurityGroup"), ask)]
    subnets = [one for key, one in model.resources.items() if "/subnets/" in key]
    users += [one for one in subnets if _names(one.facts.get("networkSecurityGroup"), ask)]
    return _deleted(model, ask, users, "InUseNetworkSecurityGroupCannotBeDeleted")


@answers("VirtualNetworks.Delete", "Subnets.Delete")
def delete_network(model: Model, ask: Ask) -> Reply:
    below = f"{ask.id.lower()}/" if ask.action == "VirtualNetworks.Delete" else ask.id.lower()
    users = [one for one in model.of_kind(INTERFACES) if any(sub.startswith(below) for sub in _subnets(one))]
    return _deleted(model, ask, users, "InUseSubnetCannotBeDeleted")


@answers("PublicIPAddresses.Delete")
def delete_address(model: Model, ask: Ask) -> Reply:
    users = [one for one in model.of_kind(INTERFACES) if ask.id.lower() in _addresses(one)]
    return _deleted(model, ask, users, "PublicIPAddressCannotBeDeleted")


@answers("NetworkInterfaces.Delete")
def delete_interface(model: Model, ask: Ask) -> Reply:
    thing = model.resources.get(ask.id.lower())
    owner = thing and thing.facts.get("virtualMachine")
    return _deleted(model, ask, [model.get(owner["id"])] if owner else [], "NicInUse")


def _deleted(model: Model, ask: Ask, users: list[Thing], code: str) -> Reply:
    if ask.id.lower() not in model.resources:
        return Reply(204)
    if users:
        raise Refusal(code, f"'{ask.id}' cannot be deleted because it is in use by '{users[0].id}'.")
    return begin(model, ask, "network", lambda: _drop(model, ask.id))


def _drop(model: Model, id_: str) -> None:
    thing = model.get(id_)
    model.drop(id_)
    refresh_those_of(model, [thing] if thing.kind == INTERFACES else [])


def _names(reference: dict[str, str] | None, thing: Thing | Ask) -> bool:
    return bool(reference) and reference["id"].lower() == thing.id.lower()


def _configurations(interface: Thing) -> Iterator[dict[str, Any]]:
    for one in interface.facts.get("ipConfigurations", []):
        yield one.get("properties") or {}


def _subnets(interface: Thing) -> list[str]:
    return [one["subnet"]["id"].lower() for one in _configurations(interface) if one.get("subnet")]


def _addresses(interface: Thing) -> list[str]:
    return [one["publicIPAddress"]["id"].lower() for one in _configurations(interface) if one.get("publicIPAddress")]


def addresses(model: Model, interfaces: Iterable[Thing]) -> list[str]:
    """Return the public addresses of interfaces."""
    found = [model.resources.get(one) for interface in interfaces for one in _addresses(interface)]
    return [one.facts["ipAddress"] for one in found if one is not None and one.kind == ADDRESSES]


def allows(model: Model, interface: Thing, address: str, port: int) -> bool:
    """Say whether somebody at an address of the internet gets to a port: through every security group on the way."""
    groups = [interface.facts.get("networkSecurityGroup")]
    groups += [model.get(one).facts.get("networkSecurityGroup") for one in _subnets(interface)]
    named = [one["id"] for one in groups if one]
    return bool(named) and all(_through(model, one, address, port) for one in named)


def reaches(model: Model, source: Thing, target: Thing, port: int) -> bool:
    """Say whether one interface gets to a port of another by its private address: only inside one virtual network.

    Nothing here is peered. What no rule decides, AllowVnetInBound lets in.
    """
    one, other = ({subnet.partition("/subnets/")[0] for subnet in _subnets(each)} for each in (source, target))
    groups = [(target.facts.get("networkSecurityGroup") or {}).get("id")]
    return bool(one & other) and all(_lets_network_in(model, group, port) for group in groups if group)


def _lets_network_in(model: Model, group: str, port: int) -> bool:
    for rule in sorted((one.facts for one in _rules(model, group)), key=lambda one: one["priority"]):
        sources = [rule.get("sourceAddressPrefix") or "", *(rule.get("sourceAddressPrefixes") or [])]
        whole = any(one.lower() in {"*", "any", "virtualnetwork"} for one in sources)
        if rule["direction"] == "Inbound" and whole and _has_port(rule, port):
            return rule["access"] == "Allow"
    return True


def _through(model: Model, group: str, address: str, port: int) -> bool:
    facts = [one.facts for one in _rules(model, group)]
    for rule in sorted(facts, key=lambda one: one["priority"]):
        meant = rule["direction"] == "Inbound" and rule["protocol"].lower() in {"*", "tcp"}
        if meant and _has_port(rule, port) and any(ipaddress.ip_address(address) in one for one in _networks(rule)):
            return rule["access"] == "Allow"
    return False  # DenyAllInBound


def _has_port(rule: dict[str, Any], port: int) -> bool:
    for one in [rule.get("destinationPortRange") or "", *(rule.get("destinationPortRanges") or [])]:
        low, _, high = one.partition("-")
        if one == "*" or (low and int(low) <= port <= int(high or low)):
            return True
    return False


def _networks(rule: dict[str, Any]) -> Iterator[Any]:
    """Yield what a rule means by its sources. Service tags other than Internet hold nobody of the internet."""
    for one in [rule.get("sourceAddressPrefix") or "", *(rule.get("sourceAddressPrefixes") or [])]:
        if one.lower() in {"*", "internet", "any"}:
            yield from (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))
        elif one and not one[0].isalpha():
            yield _network(one)


def _network(text: str) -> Any:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        sentence = f"Security rule has invalid Address prefix. Value provided: {text}"
        raise Refusal("SecurityRuleInvalidAddressPrefix", sentence) from None
