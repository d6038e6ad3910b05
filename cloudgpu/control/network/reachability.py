"""Says whether SSH on a machine is open to this client, and finds this client's public address.

The address goes into the firewall rule for SSH of a launch, and is compared with the networks that a machine's provider
lets in.
"""

from __future__ import annotations

import ipaddress
import urllib.error
import urllib.request
from dataclasses import replace
from http.client import HTTPException
from typing import TYPE_CHECKING

from cloudgpu.control.session.identity import reachable_machines
from cloudgpu.core.model.checks import Check, Verdict
from cloudgpu.core.model.machine import Machine, is_inside_network, may_allow_client, not_none
from cloudgpu.core.values.network import covers, network_text
from cloudgpu.errors import CloudgpuError, InvalidRequest, LedgerUnavailable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from cloudgpu.access.ssh.target import AccessBlocked
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.model.launch import Network
    from cloudgpu.providers.abilities import HasFirewall

ADDRESS_TIMEOUT_S = 5
MAX_ADDRESS_BYTES = 200  # a longer answer is no address


class ClientAddressUnknown(InvalidRequest):
    """No address service returned this client's address: nothing is wrong with the machine or its account."""


def client_cidr(session: Session, *, option: str = "--ssh-from") -> str:
    """Return this client's public IPv4 address as a CIDR of one address.

    Asks the address services of the settings in turn: third parties, so ask them last, when the address is needed.
    Raises ClientAddressUnknown when none answers with an address; it names the `option` by which the user gives it.
    """
    for url in session.settings.address_services:
        cidr = _query_address_service(url)
        if cidr is not None:
            return cidr
    services = ", ".join(session.settings.address_services) or "none is configured"
    raise ClientAddressUnknown(
        f"Your public address could not be found, so it is not known who may open SSH (asked: {services}).",
        field=option,
        value=None,
        next=f"Name it: {option} 203.0.113.7/32, or set address_services in config.toml.",
    )


def relaunch_network(session: Session, earlier_network: Network) -> Network:
    """Return the network for launching a machine anew: that of its earlier launch, with the user's address of now.

    Only a network that was open to one address alone gets another address.

    Where no address service answers, the earlier address stays.
    """
    if len(earlier_network.ssh_from) != 1 or not earlier_network.ssh_from[0].endswith("/32"):
        return earlier_network
    try:
        return replace(earlier_network, ssh_from=(client_cidr(session),))
    except ClientAddressUnknown:
        session.report(
            f"your public address could not be found; SSH is opened to {earlier_network.ssh_from[0]}, as before"
        )
        return earlier_network


def _query_address_service(url: str) -> str | None:
    # Not through a proxy of the environment: SSH takes no proxy, so the proxy's address would be the wrong one.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=ADDRESS_TIMEOUT_S) as answer:
            text = answer.read(MAX_ADDRESS_BYTES + 1).decode("ascii")
            return f"{ipaddress.IPv4Address(text.strip())}/32" if len(text) <= MAX_ADDRESS_BYTES else None
    except (urllib.error.URLError, HTTPException, OSError, ValueError):
        return None


def firewall_of(session: Session, machine: Machine) -> HasFirewall | None:
    """Return the provider that controls who may connect to this machine; None for no firewall, or no machine yet."""
    from cloudgpu.providers.abilities import HasFirewall

    provider = session.provider_of(machine)
    return provider if isinstance(provider, HasFirewall) and machine.provider_id else None


def access_blocked_error(session: Session, machine: Machine) -> AccessBlocked | None:
    """Return the error that says that SSH is open to others than this client; None where it is open, or not known.

    Asks the provider and an address service: to be called when SSH cannot be reached.
    """
    if is_inside_network(machine) or not may_allow_client(machine):
        return None
    try:
        firewall = firewall_of(session, machine)
        allowed = firewall.allowed(not_none(machine.provider_id)) if firewall else {}
        return _blocked_error(machine, allowed, client_cidr(session)) if allowed else None
    except CloudgpuError:
        return None  # the failed connection is the error to be reported


def _blocked_error(machine: Machine, allowed: Mapping[str, str], own_cidr: str) -> AccessBlocked | None:
    """Return the error if none of the networks in `allowed` (CIDRs by label) has this client's address; else None."""
    from cloudgpu.access.ssh.target import AccessBlocked

    if any(covers(network, own_cidr) for network in allowed.values()):
        return None
    name, address = machine.name, network_text(own_cidr)
    networks = ", ".join(sorted(set(map(network_text, allowed.values())))) or "nobody"
    return AccessBlocked(
        f"Your address is {address} now, and SSH on {name} is open to {networks}.",
        field="name",
        value=address,
        next=f"Run: cloudgpu allow {name}",
    )


def check_ssh_access(session: Session, accounts: Collection[str]) -> Iterator[Check]:
    """Yield a check for each running machine behind a firewall: whether SSH is open to this client."""
    own_cidr: str | None = None
    for machine in _running_machines(session, accounts):
        name = f"ssh to {machine.name}"
        try:
            firewall = firewall_of(session, machine)
            allowed = firewall.allowed(not_none(machine.provider_id)) if firewall else {}
            if allowed:
                own_cidr = own_cidr or client_cidr(session)
                yield _reachability_check(name, own_cidr, _blocked_error(machine, allowed, own_cidr))
        except CloudgpuError as error:
            yield Check(name, Verdict.WARN, f"it is not known whether it is open to you: {error.message}", error.next)


def _running_machines(session: Session, accounts: Collection[str]) -> list[Machine]:
    """Return the running machines of these accounts that have a firewall; none where the ledger cannot be read."""
    names = session.names()
    try:
        machines = session.ledger.machines()
    except LedgerUnavailable:
        return []  # another check reports that
    running = [
        machine
        for machine in machines
        if machine.terminated_at is None and machine.state == "running" and names.account(machine.account) in accounts
    ]
    return reachable_machines(
        session, [machine for machine in running if may_allow_client(machine) and not is_inside_network(machine)]
    )


def _reachability_check(name: str, own_cidr: str, error: AccessBlocked | None) -> Check:
    if error is None:
        return Check(name, Verdict.OK, f"open to your address, {network_text(own_cidr)}")
    return Check(name, Verdict.FAIL, error.message, error.next, error.exit_code)


def no_firewall_error(session: Session, machine: Machine, field: str) -> InvalidRequest:
    """Return the error for a machine whose provider has no firewall."""
    kind = session.provider_of(machine).kind
    return InvalidRequest(
        f"The {kind} provider has no firewall for {machine.name}: a key is enough to connect.",
        field=field,
        value=machine.name,
        next="Nothing has to be allowed there." if field == "name" else f"Leave {field} out.",
    )
