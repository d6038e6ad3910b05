"""Reads who may connect, and through what: networks as CIDRs, and a jump host. IPv4 throughout.

Machines are reached at an IPv4 address (the usual networks of the clouds give new machines no other one), so an IPv6
network could let nobody in.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from cloudgpu.errors import InvalidRequest

EVERYBODY = "0.0.0.0/0"
MIN_PREFIX_LENGTH = 8  # no network of one organisation is larger; a wider one needs an option of its own
_NOBODY = ipaddress.IPv4Network("0.0.0.0/32")
_HIGHEST_PORT = 65535
_USER = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}"
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]"
# No character that a shell, a config file or an option parser could interpret.
_JUMP = re.compile(rf"(?:(?P<user>{_USER})@)?(?P<host>{_HOST})(?::(?P<port>[0-9]{{1,5}}))?")


def parse_cidr(text: str, field: str, *, any_source: bool = False) -> str:
    """Return the IPv4 network that was typed: `203.0.113.7` (one address) or `203.0.113.0/24`.

    Raises InvalidRequest that names `field`: for IPv6, for an address inside the network where the network's own was
    meant, and for one wider than /8, unless `any_source` says that the user asked for that.
    """
    cidr = text.strip()
    if ":" in cidr:
        raise _invalid(text, field, "is not an IPv4 network, and machines are reached over IPv4", "203.0.113.7/32")
    if not re.fullmatch(r"[0-9.]{7,15}(/[0-9]{1,2})?", cidr, re.ASCII):
        raise _invalid(text, field, "is not an IPv4 address or network", "203.0.113.7 or 203.0.113.0/24")
    try:
        network = ipaddress.IPv4Network(cidr, strict=False)
    except ValueError:
        raise _invalid(text, field, "is not an IPv4 address or network", "203.0.113.7 or 203.0.113.0/24") from None
    address = cidr.partition("/")[0]
    if str(network.network_address) != address:
        problem = f"names an address inside a network: that network is {network}"
        raise _invalid(text, field, problem, f"{network}, or {address}/32 for that address alone")
    if network == _NOBODY:
        raise _invalid(text, field, "is nobody's address; everybody's network would be 0.0.0.0/0", "203.0.113.7")
    if network.prefixlen < MIN_PREFIX_LENGTH and not any_source:
        who_may_connect = "everybody" if network.prefixlen == 0 else f"{network.num_addresses:,} addresses"
        raise InvalidRequest(
            f"{field} {cidr} would let {who_may_connect} try to log in.",
            field=field,
            value=text,
            next=f"Name the network you come from (/{MIN_PREFIX_LENGTH} at the widest); if you mean it, "
            f"add {field}-anywhere.",
        )
    return str(network)


def covers(network: str, other: str) -> bool:
    """Say whether every address of the second CIDR is in the first; False for what is not an IPv4 CIDR."""
    try:
        return ipaddress.IPv4Network(other).subnet_of(ipaddress.IPv4Network(network))
    except ValueError:
        return False


def network_text(network: str) -> str:
    """Return a CIDR for a sentence: one address without its /32, all addresses as "everybody"."""
    return "everybody" if network == EVERYBODY else network.removesuffix("/32")


@dataclass(frozen=True, slots=True)
class JumpHost:
    """A jump host. None: what the user's own SSH config says. An IPv6 host is without brackets."""

    host: str
    user: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        """Return it as `[USER@]HOST[:PORT]`, an IPv6 host in brackets."""
        user, port = f"{self.user}@" * bool(self.user), f":{self.port}" * bool(self.port)
        return f"{user}{f'[{self.host}]' if ':' in self.host else self.host}{port}"

    def ssh_arguments(self) -> tuple[str, ...]:
        """Return the arguments with which the system's ssh connects to it, the destination last."""
        port = ("-p", str(self.port)) if self.port else ()
        return (*port, f"{self.user}@{self.host}" if self.user else self.host)


def parse_jump_host(text: str, field: str = "--jump") -> JumpHost:
    """Return the jump host that `[USER@]HOST[:PORT]` names; raise InvalidRequest that names `field` otherwise."""
    match = _JUMP.fullmatch(text)
    port = int(match["port"]) if match and match["port"] else None
    if match is None or (port is not None and not 1 <= port <= _HIGHEST_PORT):
        raise _invalid(text, field, "is not a jump host", "ada@bastion.example.org or ada@bastion.example.org:2222")
    return JumpHost(match["host"].strip("[]"), match["user"], port)


def _invalid(text: str, field: str, problem: str, example: str) -> InvalidRequest:
    shown = text if text.isprintable() and len(text) <= 60 else ascii(text[:60])  # noqa: PLR2004  (a line's worth)
    return InvalidRequest(f"{shown!r} {problem}.", field=field, value=shown, next=f"Write it like {example}.")
