"""What a local machine costs, its electricity, and which GPUs this computer has."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from datetime import datetime
from decimal import Decimal, InvalidOperation

from cloudgpu.core.model.offers import Accelerator, Basis, Price
from cloudgpu.core.values.money import Money
from cloudgpu.providers.local.options import LocalOptions

ASK_S = 10  # a driver that is just being loaded takes seconds; a broken one must not hold us
_MIB_PER_GIB = 1024


def gpus() -> tuple[Accelerator, ...]:
    """Return this computer's GPUs as `nvidia-smi` names them; none when it is missing or has no answer."""
    counted = Counter(_ask("name,memory.total"))
    return tuple(_accelerator(row, count) for row, count in counted.items())


def price(options: LocalOptions, now: datetime) -> Price:
    """Return watts times tariff; the GPUs' share is measured where `nvidia-smi` gives it."""
    watts, tariff = options.watts, options.usd_per_kwh
    drawn = _drawn()
    total = watts.value + (drawn or 0)
    rest = f"{watts.value} W ({watts.source}) x {tariff.value} $/kWh ({tariff.source})"
    return Price(
        per_hour=Money.usd(total * tariff.value / 1000),
        source=rest if drawn is None else f"{drawn} W (GPUs now, nvidia-smi) + {rest}",
        as_of=now,
        basis=Basis.SETTING if drawn is None else Basis.MEASURED,
    )


def _drawn() -> Decimal | None:
    """Return the watts all GPUs draw now; None when one of them does not say."""
    rows = _ask("power.draw")
    try:
        return sum((Decimal(row[0]) for row in rows), Decimal(0)) if rows else None
    except InvalidOperation:  # `[N/A]`
        return None


def _accelerator(row: tuple[str, ...], count: int) -> Accelerator:
    name, mib = row
    return Accelerator(name, count, round(int(mib) / _MIB_PER_GIB, 1) if mib.isdigit() else None)


def _ask(fields: str) -> list[tuple[str, ...]]:
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    question = [command, f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(question, capture_output=True, text=True, timeout=ASK_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = [tuple(cell.strip() for cell in line.split(",")) for line in done.stdout.splitlines()]
    wanted = fields.count(",") + 1
    return [row for row in rows if len(row) == wanted] if done.returncode == 0 else []


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
