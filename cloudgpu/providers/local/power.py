"""What a local machine costs (the computer's electricity), and which GPUs this computer has."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal, InvalidOperation

from cloudgpu.core.activity.computer_share import ComputerShare
from cloudgpu.core.model.offers import Accelerator, Basis, Price
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import duration_text
from cloudgpu.providers.electricity import PowerDraw, boards_draw
from cloudgpu.providers.local.options import LocalOptions

QUERY_TIMEOUT_S = 10  # a driver that is just being loaded takes seconds; a broken one must not hold us
_MIB_PER_GIB = 1024


def gpus() -> tuple[Accelerator, ...]:
    """Return this computer's GPUs as `nvidia-smi` names them; none when it is missing or has no answer."""
    counts = Counter(_query_nvidia_smi("name,memory.total"))
    return tuple(_accelerator(row, count) for row, count in counts.items())


def price(options: LocalOptions, gpus: Sequence[Accelerator], now: datetime) -> Price:
    """Return watts times tariff, with the GPUs at the most they can draw: what a machine will use is not known."""
    other_watts, tariff = options.watts, options.usd_per_kwh
    gpu_draw = max_draw(gpus)
    base_source = f"{other_watts.value} W ({other_watts.source}) x {tariff.value} $/kWh ({tariff.source})"
    return Price(
        per_hour=Money.usd((other_watts.value + gpu_draw.watts) * tariff.value / 1000),
        source=f"at most {gpu_draw.explanation} + {base_source}" if gpus else base_source,
        as_of=now,
        basis=Basis.ASSUMED if gpus else Basis.SETTING,
    )


def shared_price(options: LocalOptions, gpus: Sequence[Accelerator], share: ComputerShare, now: datetime) -> Price:
    """Return what an hour cost a machine with this share of the computer's electricity, as measured where it was."""
    other_watts, tariff, total_seconds = options.watts, options.usd_per_kwh, Decimal(share.seconds)
    watts, sources = other_watts.value * Decimal(share.rest_s) / total_seconds, []
    if share.measured_s:
        watts += Decimal(share.joules) / total_seconds
        duration = duration_text(share.measured_s)
        sources.append(f"measured: {share.joules / share.seconds:.0f} W of GPUs on average, over {duration}")
    if share.unmeasured_s:
        gpu_draw = max_draw(gpus)
        watts += gpu_draw.watts * Decimal(share.unmeasured_s) / total_seconds
        sources.append(f"{duration_text(share.unmeasured_s)} that nobody measured at {gpu_draw.explanation}")
    split_text = f", split among up to {share.machines} machines" if share.machines > 1 else ""
    sources.append(f"{other_watts.value} W ({other_watts.source}){split_text}")
    is_measured = share.measured_s and not share.unmeasured_s
    return Price(
        per_hour=Money.usd(watts * tariff.value / 1000),
        source=f"{' + '.join(sources)}, x {tariff.value} $/kWh ({tariff.source})",
        as_of=now,
        basis=Basis.MEASURED if is_measured else Basis.ASSUMED,
    )


def max_draw(gpus: Sequence[Accelerator]) -> PowerDraw:
    """Return the most that this computer's GPUs can draw: their power limits, else the watts of their boards."""
    with suppress(InvalidOperation):  # `[N/A]`
        limits = [Decimal(row[0]) for row in _query_nvidia_smi("power.limit")] if gpus else []
        if limits and all(limit.is_finite() and limit > 0 for limit in limits):
            return PowerDraw(sum(limits, Decimal(0)), f"{sum(limits)} W (power limit of the GPUs, nvidia-smi)")
    return boards_draw(gpus)


def _accelerator(row: tuple[str, ...], count: int) -> Accelerator:
    name, memory_mib = row
    return Accelerator(name, count, round(int(memory_mib) / _MIB_PER_GIB, 1) if memory_mib.isdigit() else None)


def _query_nvidia_smi(fields: str) -> list[tuple[str, ...]]:
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    arguments = [command, f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        completed = subprocess.run(arguments, capture_output=True, text=True, timeout=QUERY_TIMEOUT_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = [tuple(cell.strip() for cell in line.split(",")) for line in completed.stdout.splitlines()]
    column_count = fields.count(",") + 1
    return [row for row in rows if len(row) == column_count] if completed.returncode == 0 else []


def vcpus() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_gib() -> float | None:
    """Return this computer's memory in GiB."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3, 1)
    except (ValueError, OSError):
        return None
