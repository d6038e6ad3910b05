"""What launches leave on Azure beside machines and disks: resource groups, interfaces, addresses, role assignments.

A launch's network and its rules are in its group, cost nothing and are deleted with it: they are not listed. An
assignment of the role of machines stays when its machine is gone: "The role assignments aren't removed automatically"
(Understand Azure role assignments, of deleted identities).

All of these are listed, whether something uses them (`attached_to`) or not: which are orphans is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudgpu.core.model.instances import TAG_LEDGER
from cloudgpu.core.model.resources import Kind, ProviderResource, ResourceListing
from cloudgpu.errors import InvalidRequest
from cloudgpu.parallel import Pool
from cloudgpu.providers.azure import groups, ids
from cloudgpu.providers.azure.account import identity
from cloudgpu.providers.azure.calls import call_or_none, properties_of, read_list
from cloudgpu.providers.azure.client import Azure, Raw
from cloudgpu.providers.azure.compute import machine, power
from cloudgpu.providers.azure.network import shared as cluster_networks
from cloudgpu.providers.azure.storage import disks, resources as refs

ADDRESS = "public_ip_standard_static_regional"  # the catalogue's name for a public address of the Standard SKU
_NETWORK, _COMPUTE = "Microsoft.Network", "Microsoft.Compute"
POLL_PAUSE_S, MAX_POLLS = 2.0, 60  # until an interface is gone


def orphans(azure: Azure, region: str | None) -> ResourceListing:
    """Return these resources of ours, in use or not, by five calls for the whole subscription and their pages.

    One more where the settings name a role of machines. Raises the error of a call that failed: an incomplete
    listing would look complete.
    """
    network = azure.network
    with Pool(6) as pool:
        all_groups, machines = pool.submit(groups.listed, azure), pool.submit(machine.listed, azure)
        interfaces = pool.submit(
            read_list, azure, f"{_NETWORK}/networkInterfaces/read", network.network_interfaces.list_all
        )
        addresses = pool.submit(
            read_list, azure, f"{_NETWORK}/publicIPAddresses/read", network.public_ip_addresses.list_all
        )
        all_disks = pool.submit(read_list, azure, f"{_COMPUTE}/disks/read", azure.compute.disks.list)
        assignments = pool.submit(_role_assignments, azure)
        launch_groups = groups.launch_groups(all_groups.result())
        networks = [one for one in all_groups.result() if ids.CLUSTER_GROUP.fullmatch(str(one["name"]).lower())]
        inventory = _Inventory(azure, launch_groups, machines.result(), all_disks.result(), interfaces.result())
        our_resources = [
            *(inventory.group(one) for one in launch_groups),
            *(inventory.network(one) for one in networks if not groups.is_being_deleted(one)),
            *(inventory.interface(one) for one in interfaces.result() if inventory.tags_of(one)),
            *(inventory.address(one) for one in addresses.result() if inventory.tags_of(one)),
            *filter(None, map(inventory.role_assignment, assignments.result())),
        ]
    in_region = tuple(one for one in our_resources if TAG_LEDGER in one.tags and region in (None, one.region))
    return ResourceListing(in_region, regions=None if region is None else frozenset({region}))


def _role_assignments(azure: Azure) -> list[identity.RoleAssignment]:
    role = azure.options.machine_role
    return identity.role_assignments(azure, role) if role else []


class _Inventory:
    """Groups, machines, disks and interfaces that were listed: they give the others' tags, and what uses these."""

    def __init__(
        self, azure: Azure, launch_groups: list[Raw], machines: list[Raw], all_disks: list[Raw], interfaces: list[Raw]
    ) -> None:
        self._azure = azure
        self._tags = {str(one["name"]).lower(): one.get("tags") or {} for one in launch_groups}
        self._regions = {str(one["name"]).lower(): str(one["location"]) for one in launch_groups}
        self._machines = {str(one["name"]).lower(): machine.id_of(one) for one in machines}
        self._disks = {disks.group_of(one): str(one["name"]) for one in all_disks}
        self._network_used_by = cluster_networks.users_by_network(interfaces)
        self._address_used_by = {address: self._machine_of(one) for one in interfaces for address in _addresses_of(one)}

    def tags_of(self, raw: Raw) -> dict[str, str]:
        """Return the tags of a resource: its own and those of its launch's group; none for one that is not ours."""
        return {**self._tags.get(disks.group_of(raw), {}), **(raw.get("tags") or {})}

    def group(self, raw: Raw) -> ProviderResource:
        """Return a launch's group; in use by its machine, else by the retained disk in it, else by nothing."""
        name, region = str(raw["name"]).lower(), str(raw["location"])
        disk = self._disks.get(name) if groups.TAG_DISK_RETAINED in (raw.get("tags") or {}) else None
        used_by = self._machines.get(name) or (refs.ResourceRef(region, name, "disks", disk).id if disk else None)
        ref = refs.ResourceRef(region, name, "resourceGroups", name)
        return self._resource(ref, Kind.GROUP, raw.get("tags") or {}, attached_to=used_by)

    def network(self, raw: Raw) -> ProviderResource:
        """Return the group with a cluster's network: it is used as long as an interface is in that network."""
        name, region = str(raw["name"]).lower(), str(raw["location"])
        used_by = self._machine_or_azure_id(self._network_used_by.get(name, ""))
        ref = refs.ResourceRef(region, name, "resourceGroups", name)
        return self._resource(ref, Kind.GROUP, raw.get("tags") or {}, attached_to=used_by)

    def interface(self, raw: Raw) -> ProviderResource:
        """Return an interface; it is used as long as it is a machine's."""
        return self._resource(
            self._ref(raw, "networkInterfaces"), Kind.INTERFACE, self.tags_of(raw), attached_to=self._machine_of(raw)
        )

    def address(self, raw: Raw) -> ProviderResource:
        """Return an address: billed whether it is used or not. It is used where its interface has a machine."""
        return self._resource(
            self._ref(raw, "publicIPAddresses"),
            Kind.ADDRESS,
            self.tags_of(raw),
            attached_to=self._address_used_by.get(str(raw["id"]).lower()),
            name=str(properties_of(raw).get("ipAddress") or ""),
            size_gb=1,  # an address is billed as one unit of what it is `stored_as`
            stored_as=ADDRESS,
        )

    def role_assignment(self, assignment: identity.RoleAssignment) -> ProviderResource | None:
        """Return the assignment of the machine role to a machine; None for one that is not on a machine of ours."""
        scope = ids.resource(assignment.scope)
        if scope is None or not ids.GROUP.fullmatch(scope.group):
            return None
        region = self._regions.get(scope.group, refs.GLOBAL_REGION)
        ref = refs.ResourceRef(region, scope.group, "roleAssignments", assignment.id.rpartition("/")[2])
        # Without its launch's group, its ledger is not known: it is listed as one of this ledger.
        tags = self._tags.get(scope.group) or {TAG_LEDGER: self._azure.ledger}
        return self._resource(ref, Kind.ROLE, tags, attached_to=self._machines.get(scope.group))

    def _ref(self, raw: Raw, azure_type: str) -> refs.ResourceRef:
        region = str(raw["location"])
        return refs.from_azure_id(region, str(raw["id"])) or refs.ResourceRef(
            region, disks.group_of(raw), azure_type, str(raw["name"])
        )

    def _machine_of(self, raw: Raw) -> str | None:
        return self._machine_or_azure_id(str((properties_of(raw).get("virtualMachine") or {}).get("id") or ""))

    def _machine_or_azure_id(self, azure_id: str) -> str | None:
        """Return our id of a listed machine with this id of Azure's, else Azure's id itself; None for no id."""
        found = ids.resource(azure_id)
        return None if found is None else self._machines.get(found.name.lower(), azure_id)

    def _resource(
        self, ref: refs.ResourceRef, kind: Kind, tags: Mapping[str, str], **known_fields: Any
    ) -> ProviderResource:
        fields = {"zone": "", "name": "", "size_gb": 0, "stored_as": "", **known_fields}
        ours = {key: value for key, value in tags.items() if key.startswith(disks.TAG_PREFIX)}
        return ProviderResource("azure", self._azure.account, ref.region, id=ref.id, kind=kind, tags=ours, **fields)


def _addresses_of(interface: Raw) -> list[str]:
    """Return Azure's ids, in small letters, of the public addresses that an interface holds."""
    configurations = properties_of(interface).get("ipConfigurations") or ()
    addresses = (properties_of(one).get("publicIPAddress") or {} for one in configurations)
    return [str(one["id"]).lower() for one in addresses if one.get("id")]


def remove(azure: Azure, resource: ProviderResource) -> None:
    """Ask to delete the resource; what is gone already is no error. Raises InvalidRequest while something uses it.

    The interface that has an address is deleted first, if no machine uses it.
    """
    ref = refs.parse_or_raise(resource.id, resource.kind)
    if resource.kind is Kind.ROLE:
        scope = ids.machine_id(azure.subscription, ref.group)
        _check_no_machine(azure, ref)  # a launch may have made it since the groups were listed
        identity.remove_assignment(azure, f"{scope}/providers/Microsoft.Authorization/roleAssignments/{ref.name}")
    elif resource.kind is Kind.GROUP:
        _remove_group(azure, ref)
    elif resource.kind is Kind.INTERFACE:
        _remove_interface(azure, ref)
    else:
        _remove_address(azure, ref)


def _remove_group(azure: Azure, ref: refs.ResourceRef) -> None:
    """Delete a launch's group; first check by Compute that it has no machine. Three calls or four."""
    region = ref.region
    _check_no_machine(azure, ref)
    if ids.CLUSTER_GROUP.fullmatch(ref.group) and (
        used_by := cluster_networks.read_users_by_network(azure).get(ref.group)
    ):
        raise _in_use_error(ref, used_by)
    contents = groups.resources_in(azure, region, ref.group)
    if contents is None:
        return
    foreign_resources = [one for one in contents if not power.is_ours(one, ref.group)]
    disks_inside = [one for one in contents if str(one.get("type") or "").lower() == "microsoft.compute/disks"]
    if disks_inside and groups.TAG_DISK_RETAINED in groups.tags_of(azure, ref.group):
        kept_disk = f"the disk {disks_inside[0].get('name')}, which is kept"
        raise _in_use_error(ref, kept_disk, remedy="Delete that disk first.")
    if foreign_resources:
        foreign_resource = f"{foreign_resources[0].get('name')}, which cloudgpu has not made"
        raise _in_use_error(ref, foreign_resource, remedy="Delete that first, or keep the group.")
    groups.delete(azure, region, ref.group)


def _check_no_machine(azure: Azure, ref: refs.ResourceRef) -> None:
    """Raise InvalidRequest where the machine of a launch's group is there. One call."""
    machines, action = azure.compute.virtual_machines, f"{_COMPUTE}/virtualMachines/read"
    if call_or_none(azure, action, lambda: machines.get(ref.group, ref.group), region=ref.region) is not None:
        raise _in_use_error(ref, "its machine")


def _remove_interface(azure: Azure, ref: refs.ResourceRef) -> None:
    operations = azure.network.network_interfaces
    found = refs.read(azure, operations, ref)
    if found is None:
        return
    if properties_of(found).get("virtualMachine"):
        raise _in_use_error(ref, "a machine")
    refs.delete(azure, operations, ref)


def _remove_address(azure: Azure, ref: refs.ResourceRef) -> None:
    address_id, interfaces = refs.azure_id(azure.subscription, ref).lower(), azure.network.network_interfaces
    action = f"{_NETWORK}/networkInterfaces/read"
    interfaces_there = call_or_none(
        azure, action, lambda: [one.as_dict() for one in interfaces.list(ref.group)], region=ref.region
    )
    for one in interfaces_there or ():
        if address_id in _addresses_of(one):
            interface_ref = refs.ResourceRef(ref.region, ref.group, "networkInterfaces", str(one["name"]))
            _remove_interface(azure, interface_ref)
            _wait_gone(azure, interface_ref)
    refs.delete(azure, azure.network.public_ip_addresses, ref)


def _wait_gone(azure: Azure, ref: refs.ResourceRef) -> None:
    """Wait until an interface is gone: Azure refuses to delete its address before. After MAX_POLLS, return anyway."""
    for _ in range(MAX_POLLS):
        if refs.read(azure, azure.network.network_interfaces, ref) is None:
            return
        azure.pause(POLL_PAUSE_S)


def _in_use_error(ref: refs.ResourceRef, user: str, *, remedy: str = "End that machine first.") -> InvalidRequest:
    return InvalidRequest(f"{ref.id} is in use by {user}.", field="id", value=ref.id, next=remedy)
