"""What our model of Google Cloud sells, and where: regions, zones, machine types, accelerators, public images.

A part of what Google has, enough for every kind of machine with GPUs. Machine types are from the facts beside the
catalogue; which zone has which GPU, and the limits on how large an N1 machine may be beside its GPUs, are unverified
from Google's pages of GPU regions and zones.
"""

from __future__ import annotations

from typing import Any, NamedTuple

ZONES = {
    "us-central1": "abcf",
    "us-east1": "bcd",
    "us-east4": "abc",
    "us-west1": "abc",
    "europe-west4": "abc",
    "asia-east1": "abc",
}
# By accelerator: the largest number on one machine, its quota's metric, and its zones.
GPUS = {
    "nvidia-tesla-k80": (8, "NVIDIA_K80_GPUS", "us-central1-ac us-east1-cd us-west1-b asia-east1-ab"),
    "nvidia-tesla-p4": (4, "NVIDIA_P4_GPUS", "us-central1-ac us-east4-abc europe-west4-bc"),
    "nvidia-tesla-p100": (4, "NVIDIA_P100_GPUS", "us-central1-cf us-east1-bc us-west1-ab europe-west4-a asia-east1-ac"),
    "nvidia-tesla-v100": (8, "NVIDIA_V100_GPUS", "us-central1-abcf us-west1-ab europe-west4-abc asia-east1-c"),
    "nvidia-tesla-t4": (4, "NVIDIA_T4_GPUS", "us-central1-abcf us-east1-cd us-west1-ab europe-west4-abc asia-east1-ac"),
    "nvidia-l4": (8, "NVIDIA_L4_GPUS", "us-central1-abc us-east1-bcd us-east4-ac us-west1-abc europe-west4-abc"),
    "nvidia-tesla-a100": (16, "NVIDIA_A100_GPUS", "us-central1-abcf us-east1-b us-west1-b europe-west4-ab"),
    "nvidia-a100-80gb": (8, "NVIDIA_A100_80GB_GPUS", "us-central1-ac us-east4-c europe-west4-a"),
    "nvidia-h100-80gb": (8, "NVIDIA_H100", "us-central1-abc us-east4-abc us-west1-ab europe-west4-bc"),
    "nvidia-h200-141gb": (8, "NVIDIA_H200", "us-central1-b us-east4-b"),
    "nvidia-b200": (8, "NVIDIA_B200", "us-central1-b us-east4-b"),
}
GPU_COUNTS = (1, 2, 4, 8, 16)
# By accelerator and number: the most vCPUs and GiB of an N1 machine beside them (the facts: gpuhunt's limits).
N1_LIMITS = {
    "nvidia-tesla-v100": {1: (12, 78), 2: (24, 156), 4: (48, 312), 8: (96, 624)},
    "nvidia-tesla-t4": {1: (48, 312), 2: (48, 312), 4: (96, 624)},
    "nvidia-tesla-p100": {1: (16, 104), 2: (32, 208), 4: (96, 624)},
    "nvidia-tesla-p4": {1: (24, 156), 2: (48, 312), 4: (96, 624)},
    "nvidia-tesla-k80": {1: (8, 52), 2: (16, 104), 4: (32, 208), 8: (64, 416)},
}
# Name, vCPUs, MiB, accelerator, number of them, local SSDs that come with it (375 GB each).
_TYPES = """
n1-standard-1 1 3840
n1-standard-2 2 7680
n1-standard-4 4 15360
n1-standard-8 8 30720
n1-standard-16 16 61440
n1-standard-32 32 122880
n1-highmem-2 2 13312
n1-highmem-4 4 26624
n1-highmem-8 8 53248
n1-highmem-16 16 106496
e2-micro 2 1024
e2-small 2 2048
e2-medium 2 4096
g2-standard-4 4 16384 nvidia-l4 1
g2-standard-8 8 32768 nvidia-l4 1
g2-standard-12 12 49152 nvidia-l4 1
g2-standard-16 16 65536 nvidia-l4 1
g2-standard-24 24 98304 nvidia-l4 2
g2-standard-32 32 131072 nvidia-l4 1
g2-standard-48 48 196608 nvidia-l4 4
g2-standard-96 96 393216 nvidia-l4 8
a2-highgpu-1g 12 87040 nvidia-tesla-a100 1
a2-highgpu-2g 24 174080 nvidia-tesla-a100 2
a2-highgpu-4g 48 348160 nvidia-tesla-a100 4
a2-highgpu-8g 96 696320 nvidia-tesla-a100 8
a2-megagpu-16g 96 1392640 nvidia-tesla-a100 16
a2-ultragpu-1g 12 174080 nvidia-a100-80gb 1 1
a2-ultragpu-2g 24 348160 nvidia-a100-80gb 2 2
a2-ultragpu-4g 48 696320 nvidia-a100-80gb 4 4
a2-ultragpu-8g 96 1392640 nvidia-a100-80gb 8 8
a3-highgpu-1g 26 239616 nvidia-h100-80gb 1 2
a3-highgpu-2g 52 479232 nvidia-h100-80gb 2 4
a3-highgpu-4g 104 958464 nvidia-h100-80gb 4 8
a3-highgpu-8g 208 1916928 nvidia-h100-80gb 8 16
a3-ultragpu-8g 224 3022848 nvidia-h200-141gb 8 32
a4-highgpu-8g 224 4063232 nvidia-b200 8 32
"""
# By project: the families of its public images (those of deep learning are in the facts), and their disks' size in GB.
PUBLIC = {
    "deeplearning-platform-release": (
        """
        common-cu129-ubuntu-2404-nvidia-580 common-cu129-ubuntu-2204-nvidia-580
        common-cu128-ubuntu-2204-nvidia-570 common-cu128-ubuntu-2404-nvidia-570 pytorch-2-7-cu128-ubuntu-2404-nvidia-570
        pytorch-latest-gpu pytorch-latest-gpu-ubuntu-2204 common-cu113-debian-11 common-cpu
        """,
        50,
    ),
    "ubuntu-os-cloud": ("ubuntu-2204-lts ubuntu-2404-lts-amd64 ubuntu-2204-lts-arm64", 10),
    "ubuntu-os-accelerator-images": ("ubuntu-accelerator-2404-arm64-with-nvidia-580", 20),
    "debian-cloud": ("debian-11 debian-12", 10),
}


class Type(NamedTuple):
    """A machine type; `gpu` is the accelerator that comes with it, empty for none."""

    name: str
    cpus: int
    mib: int
    gpu: str = ""
    gpus: int = 0
    local_ssds: int = 0

    @property
    def zones(self) -> set[str]:
        """Where it is sold: one that brings GPUs where those are, any other everywhere."""
        return zones_of(self.gpu) if self.gpu else set(all_zones())


def _types() -> dict[str, Type]:
    rows = [row.split() for row in _TYPES.strip().splitlines()]
    return {row[0]: Type(row[0], int(row[1]), int(row[2]), *row[3:4], *map(int, row[4:])) for row in rows}


TYPES = _types()


def all_zones() -> list[str]:
    """Return all zones."""
    return [f"{region}-{letter}" for region, letters in ZONES.items() for letter in letters]


def zones_of(gpu: str) -> set[str]:
    """Return the zones that have an accelerator."""
    words = [word.rpartition("-") for word in GPUS[gpu][2].split()]
    return {f"{region}-{letter}" for region, _, letters in words for letter in letters}


def region_of(zone: str) -> str:
    """Return the region of a zone."""
    return zone.rpartition("-")[0]


def metric_of(gpu: str, *, spot: bool) -> str:
    """Return the metric of a region's quota that an accelerator counts against.

    A100 and older have metrics by these names (SkyPilot's catalogue); H100 and newer are counted by family in Cloud
    Quotas (`GPUS-PER-GPU-FAMILY-per-project-region`), and our model keeps their limits under the family's name.
    """
    return f"PREEMPTIBLE_{GPUS[gpu][1]}" if spot else GPUS[gpu][1]


def machine_type(one: Type) -> dict[str, Any]:
    """Return a machine type as the API shows it, without its place."""
    shown: dict[str, Any] = {"name": one.name, "guestCpus": one.cpus, "memoryMb": one.mib, "architecture": "X86_64"}
    shown |= {"isSharedCpu": one.name == "e2-micro", "maximumPersistentDisks": 128, "imageSpaceGb": 0}
    if one.gpu:
        shown["accelerators"] = [{"guestAcceleratorType": one.gpu, "guestAcceleratorCount": one.gpus}]
    if one.local_ssds:
        shown["bundledLocalSsds"] = {"partitionCount": one.local_ssds, "defaultInterface": "NVME"}
    return shown
