"""What a cloud says of a machine to those who write its boot data, and where on the machine they put things."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Market

HERE = "/usr/local/lib/cloudgpu"
USUAL_PORT = 22
USER = "cloudgpu"  # whom the boot data make on every machine, whatever its image


@dataclass(frozen=True, slots=True)
class Given:
    """What the boot data of one machine depend on beside its attempt.

    `reports`: it may say when it was last in use (a role, an identity, guest attributes). `can_deallocate`: it may end
    its own billing, where a shutdown from inside does not (Azure). `volume` is how the data disk is known on the
    machine: AWS the volume's id, empty for a new one; Google the device's name; Azure its LUN.
    """

    cloud: Literal["aws", "gcp", "azure"]
    ssh_port: int = USUAL_PORT
    reports: bool = False
    volume: str = ""
    can_deallocate: bool = False
    user: str = USER


def is_watched(attempt: Attempt, given: Given) -> bool:
    """Say whether a spot notice is looked out for all the time: AWS gives two minutes, the others half a minute."""
    return attempt.offer.available.market is Market.SPOT and given.cloud != "aws"
