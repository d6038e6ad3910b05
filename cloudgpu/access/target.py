"""Which machine to talk to, and with which keys."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cloudgpu.core.facts import Address


@dataclass(frozen=True, slots=True)
class Target:
    """A machine as SSH sees it. Its host key is pinned in `known_hosts` under the alias `id`, whatever its address."""

    id: str
    name: str
    address: Address
    key_file: Path
    known_hosts: Path
