"""Who may open SSH at a launch, by the labels that every provider uses. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudgpu.core.model.launch import Network

CALLER = "caller"
INSIDE = "inside"  # the network's own addresses, where no address of a caller is known: behind a jump host


def callers(network: Network, own_cidr: str) -> dict[str, str]:
    """Return who may open SSH at a launch, by label: `--ssh-from`, or the network itself where nobody is named.

    Nobody is named for a machine without a public address or behind a jump host: it is reached from the inside.
    """
    if not network.ssh_from:
        return {INSIDE: own_cidr}
    return {CALLER if number == 1 else f"{CALLER}-{number}": cidr for number, cidr in enumerate(network.ssh_from, 1)}
