"""Finds the address from which this client reaches the internet, for the one SSH rule that a machine has."""

from __future__ import annotations

import ipaddress
import urllib.error
import urllib.request
from dataclasses import replace
from http.client import HTTPException
from typing import TYPE_CHECKING

from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.control.session import Session
    from cloudgpu.core.model.launch import Network

WAIT_S = 5
LONGEST = 200  # bytes of an answer that can be an address


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
        session.tell(f"your public address could not be found; SSH is opened to {then.ssh_from[0]}, as before")
        return then


def _asked(url: str) -> str | None:
    # Not through a proxy of the environment: SSH takes no proxy, so the proxy's address would be the wrong one.
    straight = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with straight.open(url, timeout=WAIT_S) as answer:
            text = answer.read(LONGEST + 1).decode("ascii")
    except (urllib.error.URLError, HTTPException, OSError, ValueError):
        return None
    try:
        return f"{ipaddress.IPv4Address(text.strip())}/32" if len(text) <= LONGEST else None
    except ValueError:
        return None
