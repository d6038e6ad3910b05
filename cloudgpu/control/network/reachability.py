"""Says whether SSH on a machine is open to this client, and finds the address by which it reaches the internet.

That address is for the one SSH rule that a machine has. It is laid beside the networks that the machine's provider lets
in.
"""

from __future__ import annotations

import ipaddress
import urllib.error
import urllib.request
from dataclasses import replace
from http.client import HTTPException
from typing import TYPE_CHECKING

from cloudgpu.control.session.identity import reachable
from cloudgpu.core.model.checks import Check, Verdict
from cloudgpu.core.model.machine import Machine, is_behind, may_let_us_in, not_none
from cloudgpu.core.values.network import covers, network_text
from cloudgpu.errors import CloudgpuError, InvalidRequest, LedgerUnavailable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from cloudgpu.access.ssh.target import AccessBlocked
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.model.launch import Network
    from cloudgpu.providers.abilities import Reachable

WAIT_S = 5
MAX_BYTES = 200  # bytes of an answer that can be an address


class CallerUnknown(InvalidRequest):
    """No address service told this client's address: nothing is wrong with the machine or account that it was for."""


def caller_cidr(session: Session, *, option: str = "--ssh-from") -> str:
    """Return this client's public IPv4 address as a CIDR of one address.

    Asks the address services of the settings in turn: third parties, so ask them last, when the address is needed.
    Raises CallerUnknown when none answers with an address; it names the `option` with which the user can.
    """
    for url in session.settings.address_services:
        found = _asked(url)
        if found is not None:
            return found
    services = ", ".join(session.settings.address_services) or "none is configured"
    raise CallerUnknown(
        f"Your public address could not be found, so it is not known who may open SSH (asked: {services}).",
        field=option,
        value=None,
        next=f"Name it: {option} 203.0.113.7/32, or set address_services in config.toml.",
    )


def network_again(session: Session, then: Network) -> Network:
    """Return the network of an earlier launch, open to where the user is now if it was open to one address alone.

    Where no address service answers, it is open to the address of then.
    """
    if len(then.ssh_from) != 1 or not then.ssh_from[0].endswith("/32"):
        return then
    try:
        return replace(then, ssh_from=(caller_cidr(session),))
    except CallerUnknown:
        session.report(f"your public address could not be found; SSH is opened to {then.ssh_from[0]}, as before")
        return then


def _asked(url: str) -> str | None:
    # Not through a proxy of the environment: SSH takes no proxy, so the proxy's address would be the wrong one.
    straight = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with straight.open(url, timeout=WAIT_S) as answer:
            text = answer.read(MAX_BYTES + 1).decode("ascii")
    except (urllib.error.URLError, HTTPException, OSError, ValueError):
        return None
    try:
        return f"{ipaddress.IPv4Address(text.strip())}/32" if len(text) <= MAX_BYTES else None
    except ValueError:
        return None


def doorkeeper(session: Session, machine: Machine) -> Reachable | None:
    """Return the provider that says who may connect to this machine; None where it does not, or nothing is there."""
    from cloudgpu.providers.abilities import Reachable

    provider = session.provider_of(machine)
    return provider if isinstance(provider, Reachable) and machine.provider_id else None


def closed(session: Session, machine: Machine) -> AccessBlocked | None:
    """Return the error that says that SSH is open to others than this client; None where it is open, or not known.

    Asks the provider and an address service: to be called when SSH cannot be reached.
    """
    if is_behind(machine) or not may_let_us_in(machine):
        return None
    try:
        keeper = doorkeeper(session, machine)
        open_to = keeper.allowed(not_none(machine.provider_id)) if keeper else {}
        return _compared(machine, open_to, caller_cidr(session)) if open_to else None
    except CloudgpuError:
        return None  # the fault that was there first is the one to be told


def _compared(machine: Machine, open_to: Mapping[str, str], here: str) -> AccessBlocked | None:
    from cloudgpu.access.ssh.target import AccessBlocked

    if any(covers(network, here) for network in open_to.values()):
        return None
    name, address = machine.name, network_text(here)
    return AccessBlocked(
        f"Your address is {address} now, and SSH on {name} is open to {_listed(open_to.values())}.",
        field="name",
        value=address,
        next=f"Run: cloudgpu allow {name}",
    )


def _listed(networks: Iterable[str]) -> str:
    """Return networks as words of a sentence."""
    return ", ".join(sorted({network_text(network) for network in networks})) or "nobody"


def checks(session: Session, accounts: Collection[str]) -> Iterator[Check]:
    """Yield for every running machine whose provider says who may connect whether this client is among them."""
    here: str | None = None
    for machine in _running(session, accounts):
        name = f"ssh to {machine.name}"
        try:
            keeper = doorkeeper(session, machine)
            open_to = keeper.allowed(not_none(machine.provider_id)) if keeper else {}
            if open_to:
                here = here or caller_cidr(session)
                yield _check(name, here, _compared(machine, open_to, here))
        except CloudgpuError as error:
            yield Check(name, Verdict.WARN, f"it is not known whether it is open to you: {error.message}", error.next)


def _running(session: Session, accounts: Collection[str]) -> list[Machine]:
    """Return the machines that an address of ours may have been let in to; none where the ledger cannot be read."""
    try:
        machines = session.ledger.machines()
    except LedgerUnavailable:
        return []  # a check of its own says so
    seen = [
        machine
        for machine in machines
        if machine.terminated_at is None and machine.state == "running" and machine.account in accounts
    ]
    return reachable(session, [machine for machine in seen if may_let_us_in(machine) and not is_behind(machine)])


def _check(name: str, here: str, fault: AccessBlocked | None) -> Check:
    if fault is None:
        return Check(name, Verdict.OK, f"open to your address, {network_text(here)}")
    return Check(name, Verdict.FAIL, fault.message, fault.next, fault.exit_code)


def refuse_unkept(session: Session, machine: Machine, field: str) -> InvalidRequest:
    """Return the error for a machine whose provider lets whoever has a key connect."""
    kind = session.provider_of(machine).kind
    return InvalidRequest(
        f"The {kind} provider has no firewall for {machine.name}: a key is enough to connect.",
        field=field,
        value=machine.name,
        next="Nothing has to be allowed there." if field == "name" else f"Leave {field} out.",
    )
