"""What a machine's meters show: processor, network, disks, processes, GPU, and what a stop would erase."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from cloudgpu.agent.files import read_text

NET = Path("/sys/class/net")
BLOCK = Path("/sys/class/block")
PROC = Path("/proc")
TERMINALS = Path("/dev/pts")
TICK = os.sysconf("SC_CLK_TCK")
ERASED = "Instance Storage"  # in the model of an EC2 disk that a stop erases


def cards(name: str) -> Any:
    """Return a counter of all network cards; bridges to containers count only where there is no card. None: nothing."""
    found = [card for card in NET.glob("*") if card.name != "lo"]
    found = [card for card in found if (card / "device").exists()] or found
    return sum(int(read_text(card / "statistics" / name) or 0) for card in found) if found else None


def bytes_sent(known: dict[str, Any], boot: str, since: float, counter: str = "tx_bytes") -> dict[str, Any]:
    """Return the bytes sent so far, or those of another counter."""
    raw = cards(counter) or 0
    more = max(0, raw - (known["raw"] if known.get("boot") == boot else 0))
    return {"bytes": known.get("bytes", 0) + more, "raw": raw, "boot": boot, "since": known.get("since", int(since))}


def cpu() -> float:
    """Return seconds of cores that were busy since the boot."""
    times = [int(word) for word in read_text(PROC / "stat").split()[1:9]]
    return (sum(times) - times[3] - times[4]) / TICK  # without idle and waiting for disks


def disk() -> int:
    """Return bytes to and from whole disks."""
    rows = [line.split() for line in (PROC / "diskstats").read_text().splitlines()]
    return 512 * sum(int(row[5]) + int(row[9]) for row in rows if (BLOCK / row[2] / "device").exists())


def glance(fields: Any) -> tuple[Any, dict[str, Any], list[str], bool]:
    """Return since when it is up (seconds after the boot, None: just now), meters, terminals, whether it uses GPUs.

    Meters are seconds of cores and bytes since the boot; None: not readable. A machine that shares its computer with
    others has `words`, by which its own processes are known: of those alone, then.
    """
    if fields:
        from cloudgpu.agent.own import machine

        return machine(fields)
    found: dict[str, Any] = {"cpu": None, "net": None, "disk": None}
    with suppress(Exception):
        found = {"cpu": cpu(), "net": cards("rx_bytes") + cards("tx_bytes"), "disk": disk()}
    return 0.0, found, [str(path) for path in TERMINALS.glob("[0-9]*")], True


def erased(block: Path) -> bool:
    """Tell whether a disk, or one below it, is of the kind that a stop erases."""
    block = block.resolve()  # a partition's disk is the directory above it
    models = [read_text(place / "device/model") for place in (block, block.parent)]
    return any(ERASED in model for model in models) or any(map(erased, block.glob("slaves/*")))


def scratch() -> list[Any]:
    """Return [path, bytes used] of the mounted disks that a stop erases and that are not empty."""
    found = []
    for line in read_text(PROC / "mounts").splitlines():
        device, path = line.split()[:2]
        if device.startswith("/dev/") and erased(BLOCK / Path(device).resolve().name):
            with suppress(OSError):
                room = os.statvfs(path)
                if not os.access(path, os.R_OK) or set(os.listdir(path)) - {"lost+found"}:  # noqa: PTH208
                    found.append([path, (room.f_blocks - room.f_bfree) * room.f_frsize])
    return found
