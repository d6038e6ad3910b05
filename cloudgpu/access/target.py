"""Which machine to talk to, and with which keys."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cloudgpu.core.model.instances import Address
from cloudgpu.core.values.network import Jump
from cloudgpu.errors import Unreachable


@dataclass(frozen=True, slots=True)
class Target:
    """A machine as SSH sees it. Its host key is pinned in `known_hosts` under the alias `id`, whatever its address.

    `jump` is the host through which `address` is reached, None for the straight way.
    """

    id: str
    name: str
    address: Address
    key_file: Path
    known_hosts: Path
    jump: Jump | None = None

    @property
    def place(self) -> str:
        """Where it is, for a sentence."""
        through = f" through {self.jump}" if self.jump else ""
        return f"{self.address.host}:{self.address.port}{through}"


class LoginRefused(Unreachable):
    """The machine is the right one and does not let us in. Never retried: nothing would change."""


class Barred(LoginRefused):
    """Something on the way does not let us through; the machine itself may be well."""


def reason(fault: Exception) -> str:
    """Return what an operating system or SSH error says, as the end of a sentence."""
    if isinstance(fault, TimeoutError):
        return "no answer in time"
    text = getattr(fault, "strerror", None) or str(fault) or type(fault).__name__
    return str(text).strip().rstrip(".").lower()
