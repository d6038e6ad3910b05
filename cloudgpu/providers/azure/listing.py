"""Looks at machines: one by its id, or all of ours in the subscription, whatever their region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from cloudgpu.core.facts import TAG_ID, Address, Instance, Listing, State, Unanswered
from cloudgpu.errors import InstanceNotFound
from cloudgpu.providers.azure import evicted, groups, ids, translate
from cloudgpu.providers.azure.ask import ask, look
from cloudgpu.providers.azure.machine import READ
from cloudgpu.providers.machine.given import USER

if TYPE_CHECKING:
    from cloudgpu.providers.azure.client import Azure

Raw = Mapping[str, Any]
_ADDRESSES = "Microsoft.Network/publicIPAddresses/read"
_INTERFACES = "Microsoft.Network/networkInterfaces/read"


def get(azure: Azure, id: str) -> Instance:  # noqa: A002
    """Return the machine now; raise InstanceNotFound when Azure has it no more, and its group is gone, too.

    One call, a second one for the address of one that runs. A machine that is gone while its group is still being
    deleted is `stopping`: its disk may be there. A group that stays without its machine is for `orphans`.
    """
    region, group = ids.machine(id)
    found = raw(azure, region, group)
    if found is None:
        return _going(azure, region, group)
    return described(azure, found)


def raw(azure: Azure, region: str, group: str) -> Raw | None:
    """Return what Azure says of a machine, its instance view in it; None for none. One call."""
    machines = azure.compute.virtual_machines

    def asked() -> Raw:
        said: Raw = machines.get(group, group, expand="instanceView").as_dict()
        return said

    return look(azure, READ, asked, region=region, value=ids.joined(region, group))


def described(azure: Azure, found: Raw) -> Instance:
    """Return a machine as ours; one call where it runs, for its address."""
    statuses = translate.statuses_of(found)
    runs = translate.state_of(found, statuses) in (State.PENDING, State.RUNNING)
    address = _address(azure, found) if runs else None
    return evicted.told(azure, [translate.instance(found, statuses, account=azure.account, address=address)])[0]


def _going(azure: Azure, region: str, group: str) -> Instance:
    named = azure.resources.resource_groups
    found = look(azure, groups.READ, lambda: named.get(group).as_dict(), region=region, value=group)
    if found is not None and _state(found) == "deleting":
        return translate.of_group(found, account=azure.account)
    message = f"Azure {region} has no machine {group}."
    raise InstanceNotFound(message, field="instance", value=ids.joined(region, group))


def _state(found: Raw) -> str:
    return str((found.get("properties") or {}).get("provisioningState") or "").lower()


def _address(azure: Azure, found: Raw) -> Address | None:
    """Return where SSH answers: the public address in the machine's group, else the one in its own network."""
    group, region = str(found["name"]), str(found["location"])
    addresses, interfaces = azure.network.public_ip_addresses, azure.network.network_interfaces
    public = look(azure, _ADDRESSES, lambda: [one.as_dict() for one in addresses.list(group)], region=region) or []
    hosts = [(one.get("properties") or {}).get("ipAddress") for one in public]
    if not any(hosts):
        own = look(azure, _INTERFACES, lambda: [one.as_dict() for one in interfaces.list(group)], region=region) or []
        hosts = [(one.get("properties") or {}).get("privateIPAddress") for face in own for one in _configurations(face)]
    host = next((one for one in hosts if one), None)
    return Address(str(host), azure.options.ssh_port, USER) if host else None


def _configurations(interface: Raw) -> Sequence[Raw]:
    return list((interface.get("properties") or {}).get("ipConfigurations") or ())


def listed(azure: Azure) -> Listing:
    """Return every machine with a cloudgpu-id tag in the subscription, by two listings: tags, and power.

    Azure does not say that the listing of power bears tags, so that both are asked, side by side. Addresses are not
    asked for. A machine with our tag that is not where it was made is named: it cannot be looked after there. One call
    more for each spot machine that is deallocated: the log tells whether Azure took it.
    """
    found, silent = both(azure)
    return Listing(tuple(evicted.told(azure, [one for _, one in sorted(found.items())])), tuple(silent))


def both(azure: Azure) -> tuple[dict[str, Instance], list[Unanswered]]:
    """Return the machines of ours by their ids, and those that have been moved away."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        told, power = pool.submit(_all, azure), pool.submit(_all, azure, status_only="true")
        views = {_key(one): translate.statuses_of(one) for one in power.result()}
        ours = [one for one in told.result() if TAG_ID in (one.get("tags") or {})]
    found: dict[str, Instance] = {}
    moved: list[Unanswered] = []
    for one in ours:
        if not _is_at_home(one):
            moved.append(_moved(one))
            continue
        seen = translate.instance(one, views.get(_key(one), ()), account=azure.account)
        found[seen.id] = seen
    return found, moved


def _all(azure: Azure, **which: str) -> list[Raw]:
    machines = azure.compute.virtual_machines
    return ask(azure, READ, lambda: [one.as_dict() for one in machines.list_all(**which)])


def _key(found: Raw) -> str:
    return str(found.get("id") or "").lower()


def _is_at_home(found: Raw) -> bool:
    of, name = ids.resource(str(found.get("id") or "")), str(found.get("name") or "").lower()
    return of is not None and of.group == name and ids.GROUP.fullmatch(name) is not None


def _moved(found: Raw) -> Unanswered:
    of = ids.resource(str(found.get("id") or ""))
    where = of.group if of else "?"
    why = (
        f"the machine {found.get('name')} bears our tags and lies in the group {where}, where cloudgpu did not make it"
    )
    return Unanswered(f"{found.get('location')}/{where}", f"{why}: move it back, or end it at Azure.")
