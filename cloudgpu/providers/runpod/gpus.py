"""RunPod's names of GPUs as cloudgpu's: accelerators, and the names of machine types. Pure."""

from __future__ import annotations

import re

from cloudgpu.core.model.offers import Accelerator

_NOISE = re.compile(r"\b(?:NVIDIA|AMD|GeForce|Tesla|Generation|Instinct|OAM|Blackwell|Server Edition)\b")
_SLICE = re.compile(r"\b(?:MIG )?(\d)g\.\d+gb\b", re.IGNORECASE)
_TYPE = re.compile(r"([1-9]\d?)x-([a-z0-9][a-z0-9.-]*)")
_SLICES = {"RTXPRO6000": 4}  # of a GPU that can be cut; of the others here, seven


def type_name(gpu: str, count: int) -> str:
    """Return the name of the machine type with so many of a GPU: `4x-rtx-4090`."""
    return f"{count}x-{slug(gpu)}"


def count_in(type_: str) -> int | None:
    """Return how many GPUs a machine type has by its name; None where it is none of RunPod's."""
    found = _TYPE.fullmatch(type_)
    return None if found is None else int(found[1])


def slug(gpu: str) -> str:
    """Return RunPod's id of a GPU as a word: `NVIDIA H100 80GB HBM3` is `h100-80gb-hbm3`."""
    plain = re.sub(r"\b(?:NVIDIA|GeForce|Generation)\b", " ", gpu)
    return re.sub(r"[^a-z0-9.]+", "-", plain.lower()).strip("-")


def accelerator(gpu: str, memory_gb: float | None, count: int) -> Accelerator:
    """Return GPUs of RunPod's id as cloudgpu calls them; a slice of one is a share."""
    sliced = _SLICE.search(gpu)
    name = _name(_SLICE.sub(" ", gpu), memory_gb)
    if sliced is None:
        return Accelerator(name, count, memory_gb)
    return Accelerator(name, count, memory_gb, share=int(sliced[1]) / _SLICES.get(name, 7))


def _name(gpu: str, memory_gb: float | None) -> str:
    words = _NOISE.sub(" ", gpu).replace("MIG", " ").replace("-", " ").split()
    first = words[0] if words else gpu
    if first in _VARIANTS:
        return _VARIANTS[first](" ".join(words), memory_gb)
    if first == "RTX" and len(words) > 1:
        rest = words[1:]
        return "".join(rest) if re.fullmatch(r"A\d{4}", rest[0]) else "RTX" + "".join(rest)
    return "-".join(words)


def _of_a100(words: str, _memory: float | None) -> str:
    return "A100-80GB-PCIe" if "PCIe" in words else "A100-80GB" if "80GB" in words else "A100-40GB"


def _of_h100(words: str, _memory: float | None) -> str:
    return "H100-NVL" if "NVL" in words else "H100-PCIe" if "PCIe" in words else "H100"


def _of_v100(words: str, memory: float | None) -> str:
    return "V100-32GB" if "32GB" in words or (memory or 0) > 16 else "V100-16GB"  # noqa: PLR2004


_VARIANTS = {"A100": _of_a100, "H100": _of_h100, "V100": _of_v100}
