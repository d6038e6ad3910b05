"""Looks at machines: one by its id, or all of ours in the subscription, whatever their region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.instances import TAG_ID, Address, Instance, Listing, State
from cloudgpu.errors import AuthFailed, InstanceNotFound
from cloudgpu.parallel import Pool
from cloudgpu.providers.azure import groups, ids
from cloudgpu.providers.azure.calls import find, invoke
from cloudgpu.providers.azure.client import AT_ONCE, Azure
from cloudgpu.providers.azure.compute import interruption as evicted, translate
from cloudgpu.providers.azure.compute.machine import READ
from cloudgpu.providers.machine.files import USER

Raw = Mapping[str, Any]
_ADDRESSES = "Microsoft.Network/publicIPAddresses/read"
_INTERFACES = "Microsoft.Network/networkInterfaces/read"


def get(azure: Azure, id: str) -> Instance:  # noqa: A002
    """Return the machine now; raise InstanceNotFound when Azure has it no more, and its group is gone, too.

    Raises AuthFailed where the account's subscription is another one now than the machine's: that one was not asked.

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
    found: Raw | None = find(
        azure,
        READ,
        lambda: machines.get(group, group, expand="instanceView").as_dict(),
        region=region,
        value=ids.joined(region, group),
    )
    return found


def described(azure: Azure, raw: Raw) -> Instance:
    """Return a machine as ours; one call where it runs, for its address."""
    statuses = translate.statuses_of(raw)
    runs = translate.state_of(raw, statuses) in (State.PENDING, State.RUNNING)
    address = _address(azure, raw) if runs else None
    return evicted.with_causes(azure, [translate.instance(raw, statuses, account=azure.account, address=address)])[0]


def _going(azure: Azure, region: str, group: str) -> Instance:
    named = azure.resources.resource_groups
    found = find(azure, groups.READ, lambda: named.get(group).as_dict(), region=region, value=group)
    if found is not None and groups.is_going(found):
        return translate.of_group(found, account=azure.account)
    azure.launched_in.check(group, lambda: azure.subscription)
    azure.launched_in.forget(group)
    message = f"Azure {region} has no machine {group}."
    raise InstanceNotFound(message, field="instance", value=ids.joined(region, group))


def _address(azure: Azure, raw: Raw) -> Address | None:
    """Return where SSH answers: the public address in the machine's group, else what its interface says."""
    group, region = str(raw["name"]), str(raw["location"])
    addresses = azure.network.public_ip_addresses
    public = find(azure, _ADDRESSES, lambda: [one.as_dict() for one in addresses.list(group)], region=region) or []
    host = next((ip for one in public if (ip := _ip(one))), None) or _by_interface(azure, raw)
    return Address(str(host), azure.options.ssh_port, USER) if host else None


def _by_interface(azure: Azure, raw: Raw) -> str | None:
    """Return the public address that the machine's interface names, else the one in its own network."""
    network, region = azure.network, str(raw["location"])
    named = ((raw.get("properties") or {}).get("networkProfile") or {}).get("networkInterfaces") or ()
    of = next((of for one in named if (of := ids.resource(str(one.get("id") or "")))), None)
    if of is None:
        return None
    face = find(azure, _INTERFACES, lambda: network.network_interfaces.get(of.group, of.name).as_dict(), region=region)
    inside = _configurations(face or {})
    public = next((at for one in inside if (at := ids.resource(_public(one)))), None)
    if public is None:
        return next((str(one["privateIPAddress"]) for one in inside if one.get("privateIPAddress")), None)
    get_ = network.public_ip_addresses.get
    return _ip(find(azure, _ADDRESSES, lambda: get_(public.group, public.name).as_dict(), region=region) or {})


def _public(inside: Raw) -> str:
    return str((inside.get("publicIPAddress") or {}).get("id") or "")


def _ip(raw: Raw) -> str | None:
    return (raw.get("properties") or {}).get("ipAddress")


def _configurations(interface: Raw) -> list[Raw]:
    listed = (interface.get("properties") or {}).get("ipConfigurations") or ()
    return [one.get("properties") or {} for one in listed]


def listed(azure: Azure) -> Listing:
    """Return every machine with a cloudgpu-id tag in the subscription, by two listings: tags, and power.

    Azure does not say that the listing of power bears tags, so that both are asked, side by side. Addresses are not
    asked for. A machine with our tag that is not where it was made is named: it cannot be managed there. One call
    more for each spot machine that is deallocated: the log tells whether Azure took it.
    """
    found, silent = both(azure)
    silent += _elsewhere(azure)
    return Listing(tuple(evicted.with_causes(azure, [one for _, one in sorted(found.items())])), tuple(silent))


def both(azure: Azure) -> tuple[dict[str, Instance], list[Unanswered]]:
    """Return the machines of ours by their ids, and those that have been moved away.

    One whose power the listing of power does not tell (it was made in between, say, or is not made) is asked for by
    itself.
    """
    with Pool(2) as pool:
        with_causes, power = pool.submit(_all, azure), pool.submit(_all, azure, status_only="true")
        views = {_key(one): translate.statuses_of(one) for one in power.result()}
        ours = [one for one in with_causes.result() if TAG_ID in (one.get("tags") or {})]
    home = [one for one in ours if _is_at_home(one)]
    untold = [one for one in home if _is_untold(one, views.get(_key(one), ()))]
    with Pool(AT_ONCE) as pool:
        views |= {
            _key(one): view for one, view in zip(untold, pool.map(lambda one: _view(azure, one), untold), strict=True)
        }
    seen = [translate.instance(one, views.get(_key(one), ()), account=azure.account) for one in home]
    return {one.id: one for one in seen}, [_moved(one) for one in ours if not _is_at_home(one)]


def _is_untold(raw: Raw, statuses: Sequence[Raw]) -> bool:
    """Say whether the listing of power tells nothing to go by of a machine; that it was never made, is no such word."""
    return translate.state_of(raw, statuses) is State.UNKNOWN or translate.is_unmade(raw, statuses)


def _view(azure: Azure, found: Raw) -> Sequence[Raw]:
    read = raw(azure, str(found["location"]).lower(), str(found["name"]).lower())
    return () if read is None else translate.statuses_of(read)


def _all(azure: Azure, **which: str) -> list[Raw]:
    machines = azure.compute.virtual_machines
    return invoke(azure, READ, lambda: [one.as_dict() for one in machines.list_all(**which)])


def _key(raw: Raw) -> str:
    return str(raw.get("id") or "").lower()


def _is_at_home(raw: Raw) -> bool:
    of, name = ids.resource(str(raw.get("id") or "")), str(raw.get("name") or "").lower()
    return of is not None and of.group == name and ids.GROUP.fullmatch(name) is not None


def _moved(raw: Raw) -> Unanswered:
    of = ids.resource(str(raw.get("id") or ""))
    where = of.group if of else "?"
    why = f"the machine {raw.get('name')} has our tags and is in the group {where}, where cloudgpu did not make it"
    return Unanswered(f"{raw.get('location')}/{where}", f"{why}: move it back, or end it at Azure.")


def _elsewhere(azure: Azure) -> list[Unanswered]:
    """Return the machines that were launched in another subscription than the account's of now: nobody asks there."""
    found = []
    for group in sorted(one.name for one in azure.launched_in.file("").glob("cloudgpu-*")):
        try:
            azure.launched_in.check(group, lambda: azure.subscription)
        except AuthFailed as error:
            found.append(Unanswered(group, f"{error.message} {error.next}"))
    return found
