"""What launches leave at Google beside machines, disks and images: firewall rules, addresses kept by label.

Google's rules bear no labels: the description of ours says whose they are. The one rule of a network that lets nobody
in to machines of cloudgpu is told nowhere: it is of no ledger, costs nothing, and guards whatever is launched next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.instances import TAG_LEDGER
from cloudgpu.core.model.resources import Kind, ProviderResource, ResourceListing
from cloudgpu.errors import CloudgpuError, InvalidRequest
from cloudgpu.parallel import Pool
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import KIND, Gcp
from cloudgpu.providers.gcp.compute import listing
from cloudgpu.providers.gcp.compute.translate import id_of
from cloudgpu.providers.gcp.network import firewall, firewall_rules, shared
from cloudgpu.providers.gcp.network.firewall_rules import Rule
from cloudgpu.providers.gcp.network.shared import ClusterRule
from cloudgpu.providers.gcp.storage.disks import OURS
from cloudgpu.providers.gcp.storage.resources import (
    GLOBAL,
    aggregated,
    change_and_wait,
    if_found,
    joined,
    machine_of,
    our_tags,
    parse_resource_id,
    parse_time,
    scope_parameter,
    silent_scopes,
)
from cloudgpu.providers.shared.calls import result_or_error

Raw = Mapping[str, Any]
Part = tuple[list[ProviderResource], tuple[Unanswered, ...]]
FIREWALLS, ADDRESSES = "firewalls", "addresses"
STORED_AS = "static_ip_unused"  # the catalogue's name
_COLLECTIONS = {Kind.SECURITY_GROUP: (FIREWALLS,), Kind.ADDRESS: (ADDRESSES,)}


def orphans(gcp: Gcp, region: str | None) -> ResourceListing:
    """Return these things of ours, in use or not, by three lists side by side, and who did not answer.

    A rule counts as used while its machine is there. Raises the first error where nothing answered.
    """
    parts: list[Callable[[], Part]] = [lambda: _rules(gcp), lambda: _addresses(gcp)]
    with Pool(len(parts)) as pool:
        answers = list(pool.map(result_or_error, parts))
    faults = [one for one in answers if isinstance(one, CloudgpuError)]
    if len(faults) == len(answers):
        raise faults[0]
    answered = [one for one in answers if not isinstance(one, CloudgpuError)]
    silent = [Unanswered(region or gcp.account, fault.message) for fault in faults]
    silent += [gap for _, gaps in answered for gap in silent_scopes(gcp, gaps, region)]
    items = tuple(orphan for found_there, _ in answered for orphan in found_there if region in (None, orphan.region))
    return ResourceListing(items, tuple(silent), None if region is None else frozenset((region,)))


def _rules(gcp: Gcp) -> Part:
    """Return the rules that let in to machines of ours; the machines are asked for only where there are rules."""
    raw = list(firewall.listed(gcp))
    found = [one for one in map(firewall_rules.rule, raw) if one and gcp.options.uses_zone(ids.machine(one.machine)[0])]
    cluster_rules = [one for one in map(shared.read, raw) if one is not None and gcp.options.uses(one.region)]
    if not found and not cluster_rules:
        return [], ()
    machines, silent = listing.list_ours(gcp)
    machine_ids = {id_of(one) for one in machines}
    silent_zones = {gap.scope for gap in silent}
    of_clusters = [_cluster_rule(gcp, one, shared.user_of(one, machines, silent)) for one in cluster_rules]
    return [*(_rule(gcp, one, machine_ids, silent_zones) for one in found), *of_clusters], silent


def _rule(gcp: Gcp, rule: Rule, machine_ids: set[str], silent_zones: set[str]) -> ProviderResource:
    zone, _ = ids.machine(rule.machine)
    in_use = rule.machine in machine_ids or zone in silent_zones
    return ProviderResource(
        provider=KIND,
        account=gcp.account,
        region=ids.region_of(zone) or "",
        zone="",
        id=joined(GLOBAL, FIREWALLS, rule.name),
        kind=Kind.SECURITY_GROUP,
        name=rule.label,
        size_gb=0,
        stored_as="",
        tags=rule.tags,
        made_at=rule.made_at,
        attached_to=rule.machine if in_use else None,
    )


def _cluster_rule(gcp: Gcp, found: ClusterRule, user: str | None) -> ProviderResource:
    """Return the rule of a cluster; it is used as long as one of its machines is there."""
    return ProviderResource(
        provider=KIND,
        account=gcp.account,
        region=found.region,
        zone="",
        id=joined(GLOBAL, FIREWALLS, found.name),
        kind=Kind.SECURITY_GROUP,
        name=found.name,
        size_gb=0,
        stored_as="",
        tags=found.tags,
        made_at=found.made_at,
        attached_to=user,
    )


def _addresses(gcp: Gcp) -> Part:
    found, silent = aggregated(gcp, ADDRESSES, filter=OURS)
    return [_address(gcp, one) for one in found if TAG_LEDGER in our_tags(one)], silent


def _address(gcp: Gcp, raw: Raw) -> ProviderResource:
    region = ids.last(raw.get("region", "")) or GLOBAL
    return ProviderResource(
        provider=KIND,
        account=gcp.account,
        region=region,
        zone="",
        id=joined(region, ADDRESSES, raw["name"]),
        kind=Kind.ADDRESS,
        name=raw.get("address", ""),
        size_gb=1,
        stored_as=STORED_AS,
        tags=our_tags(raw),
        made_at=parse_time(raw.get("creationTimestamp")),
        attached_to=_user(raw.get("users", ())),
    )


def _user(users: Sequence[str]) -> str | None:
    """Return our id of the machine that uses an address, else the name of what does; None for none."""
    return machine_of(users) or next((ids.last(one) for one in users), None)


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
    """Take a rule away whose machine is gone: Google would take it from a machine that runs, too."""
    used = next((one for one in orphans(gcp, None).items if one.id == orphan.id and one.attached_to), None)
    if used is not None:
        message = f"The firewall rule {name} is of the machine {used.attached_to}, which is there."
        raise InvalidRequest(message, field="id", value=orphan.id, next="End that machine first: cloudgpu down")
    firewall.remove(gcp, "", name)
