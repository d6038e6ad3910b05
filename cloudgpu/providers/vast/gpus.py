"""Translates vast.ai's names of GPUs to the catalogue's, and back. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cloudgpu.core.model.offers import Accelerator, same_gpu

MIB_PER_GIB = 1024
LARGE_A100_GIB, LARGE_V100_GIB = 60, 24  # between the memory of the small variant and that of the large one
# Names of vast.ai that are different in the catalogue. Where the catalogue has two, the memory decides.
_CATALOGUE_NAMES: Mapping[str, str] = {
    "A100 PCIE": "A100-80GB-PCIe",
    "A100 SXM4": "A100-80GB",
    "A100X": "A100-80GB-PCIe",
    "H100 NVL": "H100-NVL",
    "H100 PCIE": "H100-PCIe",
    "H100 SXM": "H100",
    "H200 NVL": "H200",
    "Q RTX 6000": "QuadroRTX6000",
    "Q RTX 8000": "QuadroRTX8000",
    "RTX A4000": "A4000",
    "RTX A5000": "A5000",
    "RTX A6000": "A6000",
    "RTX PRO 6000 S": "RTXPRO6000",
    "RTX PRO 6000 WS": "RTXPRO6000",
    "V100": "V100-16GB",
}
# Names of vast.ai that are the catalogue's but for spaces.
_SAME_NAMES = (
    "A10, A30, A40, B200, B300, GH200, GTX 1080 Ti, H200, L4, L40, L40S, P100, P4, K80, M60, RTX 2080 Ti, RTX 3060, "
    "RTX 3070, RTX 3080, RTX 3080 Ti, RTX 3090, RTX 3090 Ti, RTX 4070 Ti, RTX 4080, RTX 4090, RTX 5080, RTX 5090, "
    "RTX 6000Ada, T4"
).split(", ")
TESLA = "Tesla "  # prefix of the names of older cards


def gpu_name(name: str, memory_mib: float | None) -> str:
    """Return the catalogue's name of a GPU with this memory; for an unknown GPU, its name without spaces."""
    short_name = " ".join(name.removeprefix(TESLA).split())
    catalogue_name = _CATALOGUE_NAMES.get(short_name, short_name.replace(" ", ""))
    memory_gib = (memory_mib or 0) / MIB_PER_GIB
    if catalogue_name.startswith("A100") and 0 < memory_gib < LARGE_A100_GIB:
        return "A100-40GB"
    return "V100-32GB" if catalogue_name.startswith("V100") and memory_gib > LARGE_V100_GIB else catalogue_name


def accelerator(raw: Mapping[str, Any]) -> Accelerator:
    """Return the GPUs of an offer or a contract."""
    memory_mib = raw.get("gpu_ram")
    name = gpu_name(str(raw.get("gpu_name") or ""), memory_mib)
    memory_gib = None if not memory_mib else round(float(memory_mib) / MIB_PER_GIB, 1)
    return Accelerator(name, int(raw.get("num_gpus") or 1), memory_gib)


def type_name(raw: Mapping[str, Any]) -> str:
    """Return the machine type of an offer or a contract: `1x-rtx4090`."""
    gpus = accelerator(raw)
    return f"{gpus.count}x-{gpus.name.lower()}"


def names_of(gpu: str) -> Sequence[str]:
    """Return vast.ai's names of a catalogue GPU, old spellings too; none for an unknown GPU.

    Includes names that do not tell the memory (an A100 of 40 GB), which only the offer has.
    """
    candidates: list[tuple[str, tuple[str, ...]]] = [
        (name, (catalogue_names, "A100-40GB", "V100-32GB")) for name, catalogue_names in _CATALOGUE_NAMES.items()
    ]
    candidates += [(name, (name.replace(" ", ""),)) for name in _SAME_NAMES]
    matches = [
        name
        for name, catalogue_names in candidates
        if any(same_gpu(catalogue_name, gpu) and _may_name(name, catalogue_name) for catalogue_name in catalogue_names)
    ]
    return sorted({*matches, *(f"{TESLA}{name}" for name in matches)})


def _may_name(name: str, catalogue_name: str) -> bool:
    """Tell whether a name of vast.ai can be this GPU; it does not contain the memory of A100 and V100."""
    return catalogue_name.split("-", maxsplit=1)[0] in _CATALOGUE_NAMES.get(name, name.replace(" ", ""))
