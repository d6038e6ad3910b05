"""What Google calls a type of the catalogue: its machine type, and the accelerators that are on it or attached. Pure.

GPUs of V100's time and before are attached to N1 machines: the catalogue calls such a machine `n1-standard-4+v100:1`.
Newer ones come with machine types of their own ("GPU machine types", Compute Engine's guide).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cloudgpu.catalog import instance_type
from cloudgpu.core.catalog.catalog import InstanceType
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.gcp.translate import OLD_GPU

NAME = re.compile(r"[a-z][-a-z0-9]{0,62}")
_COME_WITH = {  # by the longest beginning of a machine type's name
    "a2-highgpu-": "nvidia-tesla-a100",
    "a2-megagpu-": "nvidia-tesla-a100",
    "a2-ultragpu-": "nvidia-a100-80gb",
    "a3-edgegpu-": "nvidia-h100-80gb",
    "a3-highgpu-": "nvidia-h100-80gb",
    "a3-megagpu-": "nvidia-h100-mega-80gb",
    "a3-ultragpu-": "nvidia-h200-141gb",
    "a4-": "nvidia-b200",
    "a4x-": "nvidia-gb200",
    "g2-": "nvidia-l4",
    "g4-": "nvidia-rtx-pro-6000",
}
# "For these machine series, every machine type comes with Local SSD storage" (add-local-ssd).
_WITH_SCRATCH = ("a2-ultragpu-", "a3-", "a4-", "a4x-")


@dataclass(frozen=True, slots=True)
class Shape:
    """A type of the catalogue in Google's words. `accelerator` is empty where none is known.

    `attached`: it has to be named beside the machine type. `scratch`: a stop loses what is on its local SSD;
    `scratch_gb` None: how much that is, is not known.
    """

    name: str
    machine_type: str
    accelerator: str
    count: int
    attached: bool
    scratch: bool
    scratch_gb: float | None


def named(name: str) -> Shape:
    """Return a type in Google's words by its name; one that the catalogue lacks has no GPU.

    Raises InvalidRequest for what cannot be the name of one.
    """
    try:
        return shape(instance_type("gcp", name))
    except InvalidRequest:
        if not NAME.fullmatch(name):
            raise
        return Shape(name, name, "", 0, attached=False, scratch=False, scratch_gb=None)


def shape(one: InstanceType) -> Shape:
    """Return a type of the catalogue in Google's words."""
    machine_type, _, attached = one.name.partition("+")
    if attached:
        accelerator = f"{OLD_GPU}{attached.partition(':')[0]}"
    else:
        accelerator = next((gpu for begin, gpu in _COME_WITH.items() if machine_type.startswith(begin)), "")
    scratch = machine_type.startswith(_WITH_SCRATCH) and not machine_type.endswith("-nolssd")
    return Shape(
        name=one.name,
        machine_type=machine_type,
        accelerator=accelerator,
        count=one.gpu.count,
        attached=bool(attached),
        scratch=scratch or bool(one.local_ssd_gb),
        scratch_gb=one.local_ssd_gb,
    )
