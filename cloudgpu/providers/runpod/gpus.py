"""Translates RunPod's names of GPUs to accelerators and machine types. Pure."""

from __future__ import annotations

import re

from cloudgpu.core.model.offers import Accelerator

_OMITTED_WORDS = re.compile(r"\b(?:NVIDIA|AMD|GeForce|Tesla|Generation|Instinct|OAM|Blackwell|Server Edition)\b")
_MIG_SLICE = re.compile(r"\b(?:MIG )?(\d)g\.\d+gb\b", re.IGNORECASE)
_TYPE_NAME = re.compile(r"([1-9]\d?)x-([a-z0-9][a-z0-9.-]*)")
_SLICES_PER_GPU = {"RTXPRO6000": 4}  # MIG slices of a whole GPU; seven for any other


def type_name(gpu: str, count: int) -> str:
    """Return the name of the machine type with `count` of a GPU: `4x-rtx-4090`."""
    return f"{count}x-{slug(gpu)}"


def gpu_count_of(type_: str) -> int | None:
    """Return how many GPUs a machine type has by its name; None if it is not a type of RunPod."""
    match = _TYPE_NAME.fullmatch(type_)
    return None if match is None else int(match[1])


def slug(gpu: str) -> str:
    """Return RunPod's id of a GPU in lower case with hyphens: `NVIDIA H100 80GB HBM3` is `h100-80gb-hbm3`."""
    plain = re.sub(r"\b(?:NVIDIA|GeForce|Generation)\b", " ", gpu)
    return re.sub(r"[^a-z0-9.]+", "-", plain.lower()).strip("-")


def accelerator(gpu: str, memory_gb: float | None, count: int) -> Accelerator:
    """Return the accelerator of RunPod's GPU id; a MIG slice is a share of one GPU."""
    mig_slice = _MIG_SLICE.search(gpu)
    name = _name(_MIG_SLICE.sub(" ", gpu), memory_gb)
    if mig_slice is None:
        return Accelerator(name, count, memory_gb)
    return Accelerator(name, count, memory_gb, share=int(mig_slice[1]) / _SLICES_PER_GPU.get(name, 7))


def _name(gpu: str, memory_gb: float | None) -> str:
    name_parts = _OMITTED_WORDS.sub(" ", gpu).replace("MIG", " ").replace("-", " ").split()
    model = name_parts[0] if name_parts else gpu
    if model in _VARIANTS:
        return _VARIANTS[model](" ".join(name_parts), memory_gb)
    if model == "RTX" and len(name_parts) > 1:
        name_words = name_parts[1:]
        return "".join(name_words) if re.fullmatch(r"A\d{4}", name_words[0]) else "RTX" + "".join(name_words)
    return "-".join(name_parts)


def _a100_name(words: str, _memory: float | None) -> str:
    return "A100-80GB-PCIe" if "PCIe" in words else "A100-80GB" if "80GB" in words else "A100-40GB"


def _h100_name(words: str, _memory: float | None) -> str:
    return "H100-NVL" if "NVL" in words else "H100-PCIe" if "PCIe" in words else "H100"


def _v100_name(words: str, memory: float | None) -> str:
    return "V100-32GB" if "32GB" in words or (memory or 0) > 16 else "V100-16GB"  # noqa: PLR2004


_VARIANTS = {"A100": _a100_name, "H100": _h100_name, "V100": _v100_name}
