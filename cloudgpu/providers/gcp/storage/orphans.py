"""What launches leave at Google besides machines, disks and images: firewall rules, and addresses with our labels.

Rules have no labels: the description of ours says whose they are. The rule of a network that lets nobody in is never
listed: it is of no ledger, costs nothing, and protects later launches.
"""

from __future__ import annotations

from collections.abc import Sequence

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.instances import TAG_LEDGER
from cloudgpu.core.model.resources import Kind, ProviderResource, ResourceListing
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import PROVIDER, Gcp, Raw
from cloudgpu.providers.gcp.compute import listing
from cloudgpu.providers.gcp.compute.translate import id_of
from cloudgpu.providers.gcp.network import firewall, firewall_rules, shared
from cloudgpu.providers.gcp.network.firewall_rules import Rule
from cloudgpu.providers.gcp.network.shared import ClusterRule
from cloudgpu.providers.gcp.storage.disks import OUR_RESOURCES_FILTER
from cloudgpu.providers.gcp.storage.resources import (
    GLOBAL,
    PartialListing,
    change_and_wait,
    if_found,
    list_all_scopes,
    machine_of,
    our_tags,
    parse_resource_id,
    parse_time,
    read_lists,
    resource_id,
    scope_parameter,
)

FIREWALLS, ADDRESSES = "firewalls", "addresses"
UNUSED_ADDRESS = "static_ip_unused"  # the catalogue's name
_COLLECTIONS = {Kind.SECURITY_GROUP: (FIREWALLS,), Kind.ADDRESS: (ADDRESSES,)}


def orphans(gcp: Gcp, region: str | None) -> ResourceListing:
    """Return these resources of ours, in use or not, by lists in parallel, and what did not answer.

    A rule counts as used while its machine exists. Raises the first error where nothing answered.
    """
    return read_lists(gcp, region, [lambda: _rules(gcp), lambda: _addresses(gcp)])


def _rules(gcp: Gcp) -> PartialListing:
    """Return our rules for machines and clusters; the machines are listed only where there are rules."""
    raw_rules = list(firewall.list_rules(gcp))
    rules = [
        rule
        for rule in map(firewall_rules.parse_rule, raw_rules)
        if rule and gcp.options.uses_zone(ids.zone_and_name(rule.machine)[0])
    ]
    cluster_rules = [
        rule for rule in map(shared.parse_cluster_rule, raw_rules) if rule is not None and gcp.options.uses(rule.region)
    ]
    if not rules and not cluster_rules:
        return [], ()
    machines, unanswered = listing.list_ours(gcp)
    machine_ids = {id_of(machine) for machine in machines}
    cluster_resources = [
        _rule_resource(gcp, one, one.region, one.name, shared.machine_using(one, machines, unanswered))
        for one in cluster_rules
    ]
    return [*(_rule(gcp, rule, machine_ids, unanswered) for rule in rules), *cluster_resources], unanswered


def _rule(gcp: Gcp, rule: Rule, machine_ids: set[str], unanswered: Sequence[Unanswered]) -> ProviderResource:
    """Return the rule of a machine; it is used while that exists, or may exist in what did not answer."""
    zone, _ = ids.zone_and_name(rule.machine)
    in_use = rule.machine in machine_ids or _may_hold(unanswered, zone)
    return _rule_resource(gcp, rule, ids.region_of(zone) or "", rule.label, rule.machine if in_use else None)


def _may_hold(unanswered: Sequence[Unanswered], zone: str) -> bool:
    """Say whether what did not answer may include a zone: that zone, a region, or the account's whole list."""
    return any(gap.scope == zone or ids.region_of(gap.scope) is None for gap in unanswered)


def _rule_resource(gcp: Gcp, rule: Rule | ClusterRule, region: str, name: str, used_by: str | None) -> ProviderResource:
    return ProviderResource(
        provider=PROVIDER,
        account=gcp.account,
        region=region,
        zone="",
        id=resource_id(GLOBAL, FIREWALLS, rule.name),
        kind=Kind.SECURITY_GROUP,
        name=name,
        size_gb=0,
        stored_as="",
        tags=rule.tags,
        made_at=rule.made_at,
        attached_to=used_by,
    )


def _addresses(gcp: Gcp) -> PartialListing:
    addresses, unanswered = list_all_scopes(gcp, ADDRESSES, filter=OUR_RESOURCES_FILTER)
    return [_address(gcp, address) for address in addresses if TAG_LEDGER in our_tags(address)], unanswered


def _address(gcp: Gcp, raw: Raw) -> ProviderResource:
    region = ids.last_part(raw.get("region", "")) or GLOBAL
    return ProviderResource(
        provider=PROVIDER,
        account=gcp.account,
        region=region,
        zone="",
        id=resource_id(region, ADDRESSES, raw["name"]),
        kind=Kind.ADDRESS,
        name=raw.get("address", ""),
        size_gb=1,  # an address is billed as one unit of what it is `stored_as`
        stored_as=UNUSED_ADDRESS,
        tags=our_tags(raw),
        made_at=parse_time(raw.get("creationTimestamp")),
        attached_to=_user(raw.get("users", ())),
    )


def _user(users: Sequence[str]) -> str | None:
    """Return our id of the machine that uses an address, else the name of what does; None for none."""
    return machine_of(users) or next((ids.last_part(user) for user in users), None)


def remove(gcp: Gcp, orphan: ProviderResource) -> None:
    """Delete it; what is gone already is no error. Raises InvalidRequest while something uses it."""
    scope, collection, name = parse_resource_id(orphan, _COLLECTIONS, "cloudgpu orphans")
    if collection == FIREWALLS:
        _remove_rule(gcp, orphan, name)
        return
    service = ADDRESSES if scope_parameter(scope) else "globalAddresses"
    parameters = {**scope_parameter(scope), "address": name}
    if_found(lambda: change_and_wait(gcp, f"compute.{service}.delete", scope, value=orphan.id, **parameters))


def _remove_rule(gcp: Gcp, orphan: ProviderResource, name: str) -> None:
    """Delete a rule whose machine is gone: Google would delete that of a running machine, too.

    Raises the error of a list that did not answer: a rule that is not in it may be in use.
    """
    rules, _ = _rules(gcp)  # a machine in a silent zone counts as there
    used_rule = next((rule for rule in rules if rule.id == orphan.id and rule.attached_to), None)
    if used_rule is not None:
        message = f"The firewall rule {name} is of the machine {used_rule.attached_to}, which is there."
        raise InvalidRequest(message, field="id", value=orphan.id, next="End that machine first: cloudgpu down")
    firewall.remove(gcp, "", name)
