"""Reads machines: one by its id, or all of ours in the subscription, whatever their region."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.instances import TAG_ID, Address, Instance, Listing, State
from cloudgpu.errors import AuthFailed, InstanceNotFound
from cloudgpu.parallel import Pool
from cloudgpu.providers.azure import groups, ids
from cloudgpu.providers.azure.calls import call_or_none, properties_of, read_list
from cloudgpu.providers.azure.client import MAX_PARALLEL, Azure, Raw
from cloudgpu.providers.azure.compute import interruption, translate
from cloudgpu.providers.azure.compute.machine import READ
from cloudgpu.providers.machine.files import USER

_READ_ADDRESSES = "Microsoft.Network/publicIPAddresses/read"
_READ_INTERFACES = "Microsoft.Network/networkInterfaces/read"


def get(azure: Azure, id: str) -> Instance:  # noqa: A002
    """Return the machine now; raise InstanceNotFound when Azure has neither it nor its group.

    Raises AuthFailed where the account's subscription is now another one than the machine's.

    One call, a second one for the address of one that runs. A machine that is gone while its group is still being
    deleted is `stopping`: its disk may be there. `orphans` lists a group that stays without its machine.
    """
    region, group = ids.split_machine_id(id)
    raw = read_with_view(azure, region, group)
    return _machine_being_deleted(azure, region, group) if raw is None else instance(azure, raw)


def read_with_view(azure: Azure, region: str, group: str) -> Raw | None:
    """Return a machine as Azure describes it, with its instance view (its statuses); None for none. One call."""
    machines, id_ = azure.compute.virtual_machines, ids.join_id(region, group)
    return call_or_none(
        azure, READ, lambda: machines.get(group, group, expand="instanceView").as_dict(), region=region, value=id_
    )


def instance(azure: Azure, raw: Raw) -> Instance:
    """Return the `Instance` of a machine as Azure describes it; one call where it runs, for its address."""
    statuses = translate.statuses_of(raw)
    is_running = translate.state_of(raw, statuses) in (State.PENDING, State.RUNNING)
    address = _address(azure, raw) if is_running else None
    found = translate.instance(raw, statuses, account=azure.account, address=address)
    return interruption.with_end_causes(azure, [found])[0]


def _machine_being_deleted(azure: Azure, region: str, group: str) -> Instance:
    """Return a machine that is gone while its group is still being deleted; raise InstanceNotFound for none."""
    operations = azure.resources.resource_groups
    raw_group = call_or_none(azure, groups.READ, lambda: operations.get(group).as_dict(), region=region, value=group)
    if raw_group is not None and groups.is_being_deleted(raw_group):
        return translate.instance_of_group(raw_group, account=azure.account)
    azure.launch_subscriptions.check(group, lambda: azure.subscription)
    azure.launch_subscriptions.forget(group)
    message = f"Azure {region} has no machine {group}."
    raise InstanceNotFound(message, field="instance", value=ids.join_id(region, group))


def _address(azure: Azure, raw: Raw) -> Address | None:
    """Return the address of SSH: the public one in the machine's group, else that of its network interface."""
    group, region = str(raw["name"]), str(raw["location"])
    addresses = azure.network.public_ip_addresses
    public = (
        call_or_none(azure, _READ_ADDRESSES, lambda: [one.as_dict() for one in addresses.list(group)], region=region)
        or []
    )
    host = next((ip for one in public if (ip := _ip(one))), None) or _interface_host(azure, raw)
    return Address(str(host), azure.options.ssh_port, USER) if host else None


def _interface_host(azure: Azure, raw: Raw) -> str | None:
    """Return the public address that the machine's interface names, else the private one in its network."""
    network, region = azure.network, str(raw["location"])
    interfaces = (properties_of(raw).get("networkProfile") or {}).get("networkInterfaces") or ()
    ref = next((ref for one in interfaces if (ref := ids.resource(str(one.get("id") or "")))), None)
    if ref is None:
        return None
    read = network.network_interfaces.get
    interface = call_or_none(azure, _READ_INTERFACES, lambda: read(ref.group, ref.name).as_dict(), region=region)
    configurations = [properties_of(one) for one in properties_of(interface or {}).get("ipConfigurations") or ()]
    public = next((ref for one in configurations if (ref := ids.resource(_public_address_id(one)))), None)
    if public is None:
        return next((str(one["privateIPAddress"]) for one in configurations if one.get("privateIPAddress")), None)
    read = network.public_ip_addresses.get
    return _ip(
        call_or_none(azure, _READ_ADDRESSES, lambda: read(public.group, public.name).as_dict(), region=region) or {}
    )


def _public_address_id(configuration: Raw) -> str:
    return str((configuration.get("publicIPAddress") or {}).get("id") or "")


def _ip(raw: Raw) -> str | None:
    return properties_of(raw).get("ipAddress")


def listed(azure: Azure) -> Listing:
    """Return every machine with a cloudgpu-id tag in the subscription, by two listings: tags, and power.

    Azure does not document that the listing of power states has tags, so both are called, at the same time. Addresses
    are not read. A machine with our tag that was moved to another group is named: it cannot be managed there. One call
    more for each deallocated spot machine: the activity log says whether Azure evicted it.
    """
    found, unanswered = list_ours(azure)
    unanswered += _in_other_subscriptions(azure)
    return Listing(
        tuple(interruption.with_end_causes(azure, [one for _, one in sorted(found.items())])), tuple(unanswered)
    )


def list_ours(azure: Azure) -> tuple[dict[str, Instance], list[Unanswered]]:
    """Return the machines of ours by their ids, and those that have been moved away.

    One whose power state the listing does not have (it was created in between, say) is read by itself.
    """
    with Pool(2) as pool:
        with_tags, with_power = pool.submit(_list_all, azure), pool.submit(_list_all, azure, status_only="true")
        statuses = {_azure_id(one): translate.statuses_of(one) for one in with_power.result()}
        tagged_machines = [one for one in with_tags.result() if TAG_ID in (one.get("tags") or {})]
    in_own_group = [one for one in tagged_machines if _is_in_own_group(one)]
    unknown = [one for one in in_own_group if _is_power_unknown(one, statuses.get(_azure_id(one), ()))]
    with Pool(MAX_PARALLEL) as pool:
        statuses |= zip(map(_azure_id, unknown), pool.map(lambda one: _read_statuses(azure, one), unknown), strict=True)
    instances = [
        translate.instance(one, statuses.get(_azure_id(one), ()), account=azure.account) for one in in_own_group
    ]
    return {one.id: one for one in instances}, [
        _moved_machine(one) for one in tagged_machines if not _is_in_own_group(one)
    ]


def _is_power_unknown(raw: Raw, statuses: Sequence[Raw]) -> bool:
    """Say whether the listing of power states does not prove a machine's state; a failed creation there is no proof."""
    return translate.state_of(raw, statuses) is State.UNKNOWN or translate.creation_failed(raw, statuses)


def _read_statuses(azure: Azure, raw: Raw) -> Sequence[Raw]:
    found = read_with_view(azure, str(raw["location"]).lower(), str(raw["name"]).lower())
    return () if found is None else translate.statuses_of(found)


def _list_all(azure: Azure, **query: str) -> list[Raw]:
    return read_list(azure, READ, partial(azure.compute.virtual_machines.list_all, **query))


def _azure_id(raw: Raw) -> str:
    return str(raw.get("id") or "").lower()


def _is_in_own_group(raw: Raw) -> bool:
    resource, name = ids.resource(str(raw.get("id") or "")), str(raw.get("name") or "").lower()
    return resource is not None and resource.group == name and ids.GROUP.fullmatch(name) is not None


def _moved_machine(raw: Raw) -> Unanswered:
    resource = ids.resource(str(raw.get("id") or ""))
    group_name = resource.group if resource else "?"
    why = f"the machine {raw.get('name')} has our tags and is in the group {group_name}, where cloudgpu did not make it"
    return Unanswered(f"{raw.get('location')}/{group_name}", f"{why}: move it back, or end it at Azure.")


def _in_other_subscriptions(azure: Azure) -> list[Unanswered]:
    """Return the machines that were launched in another subscription than the account's present one."""
    found = []
    for group in sorted(one.name for one in azure.launch_subscriptions.file("").glob("cloudgpu-*")):
        try:
            azure.launch_subscriptions.check(group, lambda: azure.subscription)
        except AuthFailed as error:
            found.append(Unanswered(group, f"{error.message} {error.next}"))
    return found
