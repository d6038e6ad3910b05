"""What launches leave on Azure beside machines and disks: resource groups, interfaces, addresses, given roles.

A launch's network and its rules lie in its group, cost nothing and go with it: they are not told one by one. An
assignment of the role of machines stays when its machine is gone: "The role assignments aren't removed automatically"
(Understand Azure role assignments, of deleted identities).
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
from cloudgpu.providers.azure.calls import find, invoke, properties_of
from cloudgpu.providers.azure.client import Azure
from cloudgpu.providers.azure.compute import machine, power
from cloudgpu.providers.azure.network import shared
from cloudgpu.providers.azure.storage import disks, resources as refs

Raw = Mapping[str, Any]
ADDRESS = "public_ip_standard_static_regional"  # the catalogue's name for a public address of the Standard SKU
_NETWORK, _COMPUTE = "Microsoft.Network", "Microsoft.Compute"
POLL_PAUSE_S, MAX_POLLS = 2.0, 60  # until an interface is gone


def orphans(azure: Azure, region: str | None) -> ResourceListing:
    """Return these things of ours, in use or not, by five calls for the whole subscription and their pages.

    One more where the settings name a role of machines. Raises the error of whichever did not answer: a part would
    look like the whole.
    """
    network = azure.network
    with Pool(6) as pool:
        listed, machines = pool.submit(groups.listed, azure), pool.submit(machine.listed, azure)
        interfaces = pool.submit(_listed, azure, f"{_NETWORK}/networkInterfaces", network.network_interfaces.list_all)
        addresses = pool.submit(_listed, azure, f"{_NETWORK}/publicIPAddresses", network.public_ip_addresses.list_all)
        all_disks = pool.submit(_listed, azure, f"{_COMPUTE}/disks", azure.compute.disks.list)
        assignments = pool.submit(_role_assignments, azure)
        launched = groups.of_launches(listed.result())
        networks = [one for one in listed.result() if ids.CLUSTER_GROUP.fullmatch(str(one["name"]).lower())]
        known = _Inventory(azure, launched, machines.result(), all_disks.result(), interfaces.result())
        found = [
            *(known.group(one) for one in launched),
            *(known.network(one) for one in networks if not groups.is_being_deleted(one)),
            *(known.interface(one) for one in interfaces.result() if known.tags_of(one)),
            *(known.address(one) for one in addresses.result() if known.tags_of(one)),
            *filter(None, map(known.role_assignment, assignments.result())),
        ]
    here = tuple(one for one in found if TAG_LEDGER in one.tags and region in (None, one.region))
    return ResourceListing(here, regions=None if region is None else frozenset({region}))


def _listed(azure: Azure, kind: str, listed: Any) -> list[Raw]:
    return invoke(azure, f"{kind}/read", lambda: [one.as_dict() for one in listed()])


def _role_assignments(azure: Azure) -> list[identity.RoleAssignment]:
    role = azure.options.machine_role
    return identity.role_assignments(azure, role) if role else []


class _Inventory:
    """What Azure said of groups, machines, disks and interfaces, by which the rest is told."""

    def __init__(
        self, azure: Azure, launched: list[Raw], machines: list[Raw], all_disks: list[Raw], interfaces: list[Raw]
    ) -> None:
        self._azure = azure
        self._tags = {str(one["name"]).lower(): one.get("tags") or {} for one in launched}
        self._regions = {str(one["name"]).lower(): str(one["location"]) for one in launched}
        self._machines = {str(one["name"]).lower(): machine.id_of(one) for one in machines}
        self._disks = {disks.group_of(one): str(one["name"]) for one in all_disks}
        self._network_users = shared.users_among(interfaces)
        self._holders = {address: self._user(one) for one in interfaces for address in _addresses_of(one)}

    def tags_of(self, raw: Raw) -> dict[str, str]:
        """Return the tags of something: its own, else those of its launch's group; nothing for what is not ours."""
        return {**self._tags.get(disks.group_of(raw), {}), **(raw.get("tags") or {})}

    def group(self, raw: Raw) -> ProviderResource:
        """Return a launch's group: its machine uses it, or a disk in it that is kept on purpose."""
        name, region = str(raw["name"]).lower(), str(raw["location"])
        disk = self._disks.get(name) if groups.TAG_KEPT in (raw.get("tags") or {}) else None
        user = self._machines.get(name) or (refs.ResourceRef(region, name, "disks", disk).id if disk else None)
        orphan = refs.ResourceRef(region, name, "resourceGroups", name)
        return self._orphan(orphan, Kind.GROUP, raw.get("tags") or {}, attached_to=user)

    def network(self, raw: Raw) -> ProviderResource:
        """Return the group with a cluster's network: it is used as long as something hangs in that."""
        name, region = str(raw["name"]).lower(), str(raw["location"])
        user = self._machine_or_azure_id(self._network_users.get(name, ""))
        orphan = refs.ResourceRef(region, name, "resourceGroups", name)
        return self._orphan(orphan, Kind.GROUP, raw.get("tags") or {}, attached_to=user)

    def interface(self, raw: Raw) -> ProviderResource:
        """Return an interface; it is used as long as it is a machine's."""
        return self._orphan(
            self._ref(raw, "networkInterfaces"), Kind.INTERFACE, self.tags_of(raw), attached_to=self._user(raw)
        )

    def address(self, raw: Raw) -> ProviderResource:
        """Return an address: billed whether it is used or not. It is used where its interface's machine is there."""
        return self._orphan(
            self._ref(raw, "publicIPAddresses"),
            Kind.ADDRESS,
            self.tags_of(raw),
            attached_to=self._holders.get(str(raw["id"]).lower()),
            name=str(properties_of(raw).get("ipAddress") or ""),
            size_gb=1,
            stored_as=ADDRESS,
        )

    def role_assignment(self, assignment: identity.RoleAssignment) -> ProviderResource | None:
        """Return a role that a machine's identity was given; None for what is no machine of ours."""
        scope = ids.resource(assignment.scope)
        if scope is None or not ids.GROUP.fullmatch(scope.group):
            return None
        region = self._regions.get(scope.group, refs.ANYWHERE)
        orphan = refs.ResourceRef(region, scope.group, "roleAssignments", assignment.id.rpartition("/")[2])
        # One of a launch that is gone with its group bears no word of its ledger: it is told as this one's own.
        tags = self._tags.get(scope.group) or {TAG_LEDGER: self._azure.ledger}
        return self._orphan(orphan, Kind.ROLE, tags, attached_to=self._machines.get(scope.group))

    def _ref(self, raw: Raw, kind: str) -> refs.ResourceRef:
        region = str(raw["location"])
        return refs.from_azure_id(region, str(raw["id"])) or refs.ResourceRef(
            region, disks.group_of(raw), kind, str(raw["name"])
        )

    def _user(self, raw: Raw) -> str | None:
        return self._machine_or_azure_id(str((properties_of(raw).get("virtualMachine") or {}).get("id") or ""))

    def _machine_or_azure_id(self, azure_id: str) -> str | None:
        """Return our id of a machine that is there, else Azure's of what it names; None for no id."""
        found = ids.resource(azure_id)
        return None if found is None else self._machines.get(found.name.lower(), azure_id)

    def _orphan(self, orphan: refs.ResourceRef, kind: Kind, tags: Mapping[str, str], **facts: Any) -> ProviderResource:
        known = {"zone": "", "name": "", "size_gb": 0, "stored_as": "", **facts}
        ours = {key: value for key, value in tags.items() if key.startswith(disks.TAG_PREFIX)}
        return ProviderResource(
            "azure", self._azure.account, orphan.region, id=orphan.id, kind=kind, tags=ours, **known
        )


def _addresses_of(interface: Raw) -> list[str]:
    """Return Azure's ids, in small letters, of the public addresses that an interface holds."""
    configurations = properties_of(interface).get("ipConfigurations") or ()
    addresses = (properties_of(one).get("publicIPAddress") or {} for one in configurations)
    return [str(one["id"]).lower() for one in addresses if one.get("id")]


def remove(azure: Azure, orphan: ProviderResource) -> None:
    """Ask to delete it; what is gone already is no error. Raises InvalidRequest while something uses it.

    An address is let go of by the interface that holds it first: that one goes too, where it is not a machine's.
    """
    ref = refs.parse_leftover(orphan.id, orphan.kind)
    if orphan.kind is Kind.ROLE:
        scope = ids.machine_id(azure.subscription, ref.group)
        _check_no_machine(azure, ref)  # a launch may have made it since the groups were listed
        identity.remove_assignment(azure, f"{scope}/providers/Microsoft.Authorization/roleAssignments/{ref.name}")
    elif orphan.kind is Kind.GROUP:
        _remove_group(azure, ref)
    elif orphan.kind is Kind.INTERFACE:
        _remove_interface(azure, ref)
    else:
        _remove_address(azure, ref)


def _remove_group(azure: Azure, ref: refs.ResourceRef) -> None:
    """Delete a launch's group; first Compute itself is asked whether its machine is there. Three calls or four."""
    region = ref.region
    _check_no_machine(azure, ref)
    if ids.CLUSTER_GROUP.fullmatch(ref.group) and (user := shared.users(azure).get(ref.group)):
        raise _in_use_error(ref, user)
    inside = groups.resources_in(azure, region, ref.group)
    if inside is None:
        return
    others = [one for one in inside if not power.is_ours(one, ref.group)]
    kept = [one for one in inside if str(one.get("type") or "").lower() == "microsoft.compute/disks"]
    if kept and groups.TAG_KEPT in groups.tags_of(azure, ref.group):
        raise _in_use_error(ref, f"the disk {kept[0].get('name')}, which is kept")
    if others:
        raise _in_use_error(ref, f"{others[0].get('name')}, which cloudgpu has not made")
    groups.delete(azure, region, ref.group)


def _check_no_machine(azure: Azure, ref: refs.ResourceRef) -> None:
    """Raise InvalidRequest where the machine of a launch's group is there. One call."""
    machines, action = azure.compute.virtual_machines, f"{_COMPUTE}/virtualMachines/read"
    if find(azure, action, lambda: machines.get(ref.group, ref.group), region=ref.region) is not None:
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
    there = find(azure, action, lambda: [one.as_dict() for one in interfaces.list(ref.group)], region=ref.region)
    for one in there or ():
        if address_id in _addresses_of(one):
            holds = refs.ResourceRef(ref.region, ref.group, "networkInterfaces", str(one["name"]))
            _remove_interface(azure, holds)
            _wait_gone(azure, holds)
    refs.delete(azure, azure.network.public_ip_addresses, ref)


def _wait_gone(azure: Azure, ref: refs.ResourceRef) -> None:
    """Wait until an interface is gone: Azure refuses to delete an address before. What is not, the next call tells."""
    for _ in range(MAX_POLLS):
        if refs.read(azure, azure.network.network_interfaces, ref) is None:
            return
        azure.pause(POLL_PAUSE_S)


def _in_use_error(ref: refs.ResourceRef, by: str) -> InvalidRequest:
    message = f"{ref.id} is in use by {by}."
    return InvalidRequest(message, field="id", value=ref.id, next="End that machine first.")
