"""What a machine's meters show: processor, network, disks, processes, GPU, and what a stop would erase."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from cloudgpu.agent.files import read_text

NETWORK_DEVICES = Path("/sys/class/net")
BLOCK_DEVICES = Path("/sys/class/block")
PROC = Path("/proc")
TERMINALS = Path("/dev/pts")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
ERASED_MODEL = "Instance Storage"  # a part of the model name of an EC2 disk that a stop erases


def network_counter(counter: str) -> Any:
    """Return the sum of a counter of /sys/class/net/*/statistics over all network cards, None without any.

    Virtual interfaces (bridges to containers) count only where there is no real card.
    """
    cards = [card for card in NETWORK_DEVICES.glob("*") if card.name != "lo"]
    cards = [card for card in cards if (card / "device").exists()] or cards
    return sum(int(read_text(card / "statistics" / counter) or 0) for card in cards) if cards else None


def traffic_total(stored: dict[str, Any], boot: str, up_since: float, counter: str = "tx_bytes") -> dict[str, Any]:
    """Return the record of the bytes of one network counter, over all boots; `stored` is the record before.

    `raw` is the counter itself, which begins at 0 at each boot (`boot`), `since` the epoch from which it counts.
    """
    raw = network_counter(counter) or 0
    new_bytes = max(0, raw - (stored["raw"] if stored.get("boot") == boot else 0))
    return {
        "bytes": stored.get("bytes", 0) + new_bytes,
        "raw": raw,
        "boot": boot,
        "since": stored.get("since", int(up_since)),
    }


def cpu_seconds() -> float:
    """Return core-seconds that were busy since the boot."""
    times = [int(word) for word in read_text(PROC / "stat").split()[1:9]]
    return (sum(times) - times[3] - times[4]) / TICKS_PER_SECOND  # without idle and waiting for disks


def disk_bytes() -> int:
    """Return bytes read from and written to disks since the boot; partitions are not counted again."""
    rows = [line.split() for line in (PROC / "diskstats").read_text().splitlines()]
    return 512 * sum(int(row[5]) + int(row[9]) for row in rows if (BLOCK_DEVICES / row[2] / "device").exists())


def read_meters(process_marks: Any) -> tuple[Any, dict[str, Any], list[str], bool]:
    """Return since when it is up (seconds after the boot, None: just now), meters, terminals, whether it uses GPUs.

    Meters are core-seconds and bytes since the boot; None: not readable. On a computer shared with other machines,
    only processes count that have one of `process_marks` in their environment.
    """
    if process_marks:
        from cloudgpu.agent.own import read_own_meters

        return read_own_meters(process_marks)
    meters: dict[str, Any] = {"cpu": None, "net": None, "disk": None}
    with suppress(Exception):
        meters = {
            "cpu": cpu_seconds(),
            "net": network_counter("rx_bytes") + network_counter("tx_bytes"),
            "disk": disk_bytes(),
        }
    return 0.0, meters, [str(path) for path in TERMINALS.glob("[0-9]*")], True


def is_erased_by_stop(device: Path) -> bool:
    """Tell whether a disk, or one below it, is of the kind that a stop erases."""
    device = device.resolve()  # a partition's disk is the directory above it
    models = [read_text(place / "device/model") for place in (device, device.parent)]
    return any(ERASED_MODEL in model for model in models) or any(map(is_erased_by_stop, device.glob("slaves/*")))


def scratch_disks() -> list[Any]:
    """Return [path, bytes used] of the mounted disks that a stop erases and that are not empty."""
    disks = []
    for line in read_text(PROC / "mounts").splitlines():
        device, path = line.split()[:2]
        if device.startswith("/dev/") and is_erased_by_stop(BLOCK_DEVICES / Path(device).resolve().name):
            with suppress(OSError):
                usage = os.statvfs(path)
                if not os.access(path, os.R_OK) or set(os.listdir(path)) - {"lost+found"}:  # noqa: PTH208
                    disks.append([path, (usage.f_blocks - usage.f_bfree) * usage.f_frsize])
    return disks
