"""Rules by which everybody gets in, and that are not cloudgpu's: what a plan and `doctor` say of them. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cloudgpu.core.values.network import WIDEST
from cloudgpu.providers.account_abilities import Finding

WIDEST_6 = 16  # bits: the largest IPv6 networks that registries give to one holder are far smaller
EVERYBODY = ("*", "any", "internet")  # as Azure writes it
WHAT = "rules made by hand"


@dataclass(frozen=True, slots=True)
class Opening:
    """A rule that lets everybody in: `says` is a clause about it, `close` the command that takes it away."""

    says: str
    close: str

    @property
    def risk(self) -> str:
        """The sentence for a plan."""
        return f"RISK: {self.says}. Close it: {self.close}"


def is_wide(source: str) -> bool:
    """Say whether a network is everybody's, or so wide that no one holder has it."""
    if source.lower() in EVERYBODY:
        return True
    try:
        found = ipaddress.ip_network(source, strict=False)
    except ValueError:
        return False
    return found.prefixlen < (WIDEST if found.version == 4 else WIDEST_6)  # noqa: PLR2004  (IPv4)


def finding(found: Sequence[Opening], good: str) -> Finding:
    """Return what doctor says: what is open and how to close it, or that nothing is."""
    if not found:
        return Finding(WHAT, good=True, says=good)
    says, way = "; ".join(one.says for one in found), "; ".join(one.close for one in found)
    return Finding(WHAT, good=False, says=says, next=f"If nobody needs it: {way}")
