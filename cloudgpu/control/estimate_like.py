"""Reads a past run from the ledger, as work that another machine could do: its hours of use, and its GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from cloudgpu import catalog
from cloudgpu.control.session import find_machine
from cloudgpu.control.worked import worked
from cloudgpu.core.advice.estimate import Job
from cloudgpu.core.catalog.catalog import meant_by
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.control.session import Session
    from cloudgpu.core.catalog.catalog import GpuSpec
    from cloudgpu.core.catalog.gpus import Faster

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Past:
    """What a machine of the ledger did: its GPU, how many (a share is a part of one), and its billed hours by kind."""

    id: str
    name: str
    gpu: GpuSpec
    gpus: Fraction
    memory_gib: float
    gpu_hours: Fraction
    used_hours: Fraction
    idle_hours: Fraction
    unknown_hours: Fraction

    @property
    def work(self) -> Job:
        """The hours that count: in use; at least while the GPU was busy, at most with all that is not known.

        Where nothing is known of its use, every hour counts; where no GPU was read, all use is the GPU's.
        """
        known = self.gpu_hours + self.used_hours
        most = known + self.unknown_hours
        return Job(self.gpu_hours or known or most, known or most, most)


def past_run(session: Session, name: str) -> Past:
    """Return the run of the machine that is called so, an ended one too: the latest of that name.

    Raises InstanceNotFound for an unknown name, InvalidRequest where it had no GPU that the catalogue knows, or was
    never in use.
    """
    rows, uses = session.ledger.read(lambda view: (view.machines(), list(view.uses(""))))
    row = find_machine([one for one in rows if not one["thing"]], name, session.clock(), ended=True)
    spec, accelerator = _gpu_of(row)
    mine = [(subject, use) for subject, use in uses if subject == row["id"]]
    hours = worked(session, [row], mine).get(row["id"], ())
    sums = [
        Fraction(str(round(sum(getattr(one, kind) for one in hours), 6))) / 3600
        for kind in ("gpu", "used", "idle", "unknown")
    ]
    found = Past(
        row["id"],
        row["name"],
        spec,
        Fraction(str(accelerator["count"])) * Fraction(accelerator["share"]).limit_denominator(8),
        accelerator["memory_gib"] or spec.memory_gib,
        *sums,
    )
    if not found.work.hours:
        raise _never_used(found)
    return found


def past_value(past: Past) -> Row:
    """Return a past run as plain values; hours are those that it was billed for."""
    hours = ("gpu_hours", "used_hours", "idle_hours", "unknown_hours")
    return {
        "id": past.id,
        "name": past.name,
        "gpu": past.gpu.name,
        "gpus": float(past.gpus),
        "gpu_memory_gib": past.memory_gib,
        **{name: round(float(getattr(past, name)), 6) for name in hours},
    }


def _gpu_of(row: Row) -> tuple[GpuSpec, Row]:
    found: list[Row] = row["accelerators"] or []
    if len(found) != 1:
        has = f"{len(found)} kinds of GPU" if found else "no GPU"
        raise _no_gpu(row, f"{row['name']} has {has}, so its work says nothing of another GPU's hours.")
    (one,) = found
    spec = _spec(one)
    if spec is None:
        raise _no_gpu(row, f"The GPU of {row['name']} is {one['name']!r}, of which the catalogue knows no speed.")
    return spec, one


def _spec(gpu: Row) -> GpuSpec | None:
    """Return what is known of a machine's GPU; its memory says which, where its name means several."""
    known = catalog.named_gpu(gpu["name"])
    if known is not None:
        return known
    try:
        meant = meant_by(gpu["name"], catalog.gpus())
    except InvalidRequest:
        return None
    alike = [spec for spec in meant if gpu["memory_gib"] in (None, spec.memory_gib)]
    return alike[0] if len(alike) == 1 else None


def _no_gpu(row: Row, says: str) -> InvalidRequest:
    way = "Say how much work it is instead: --flops, or --hours-per-day."
    return InvalidRequest(says, field="--like", value=row["name"], next=way)


def _never_used(past: Past) -> InvalidRequest:
    why = (
        f"all of its {float(past.idle_hours):.2f} billed hours were idle" if past.idle_hours else "it was never billed"
    )
    return InvalidRequest(
        f"{past.name} did no work that could be repeated: {why}.",
        field="--like",
        value=past.name,
        next=f"Run: cloudgpu show {past.name} --why",
    )


def on_other(past: Past, ratio: Faster, gpus: Fraction) -> Job:
    """Return the hours of the same work on so many GPUs, of which one is so many times as fast; linear in their number.

    At least: the GPU's hours alone, and the best reading of the speeds; at most: all that is not known, and the worst.
    """
    work = past.work
    low, hours, high = ((work.low, ratio.high), (work.hours, ratio.ratio), (work.high, ratio.low))
    return Job(*(time * past.gpus / gpus / speed for time, speed in (low, hours, high)))
