"""Which driver drives a GPU, and which public images there are: facts, as values."""

from __future__ import annotations

from dataclasses import dataclass

CURRENT = ""  # of a branch or a version: today's newest still supports the GPU


@dataclass(frozen=True, slots=True)
class GpuDriver:
    """What drives a generation of NVIDIA GPUs.

    `last_branch` and `last_cuda` are the last that support it (CURRENT: they still do). `driver` and `toolkit` are the
    packages of NVIDIA's repository that install them, empty where an image with a driver is used. `system` is the only
    system on which that is known to work, empty for any. `recalled` says what rests on memory.
    """

    family: str
    last_branch: str
    last_cuda: str
    driver: str
    toolkit: str
    system: str
    recalled: str
    source: str
    as_of: str

    @property
    def is_current(self) -> bool:
        """Say whether an image with today's driver drives it."""
        return self.last_branch == CURRENT


@dataclass(frozen=True, slots=True)
class PublicImage:
    """A public image that is kept up to date: its parameter, and the pattern of its name with its owner."""

    provider: str
    use: str  # `cuda` (NVIDIA's driver is on it) or `plain`
    machine: str  # x86_64 or arm64
    system: str
    parameter: str
    pattern: str
    owner: str
    source: str
    as_of: str
