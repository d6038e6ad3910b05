"""Reads how long machines worked in each hour that they were billed for, and what one's own machines drew.

By the samples that this home has: in a team each home has those of the machines that its own passes asked. What nobody
here asked for is not known, and not idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cloudgpu.control.session.session import Session
from cloudgpu.core.activity.utilization import HOUR, OWN_PROVIDER, ActivityReport, Hour, hours
from cloudgpu.core.events.observations import NEWS_OF_ACTIVITY
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.model.usage import Resource, Usage
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError
from cloudgpu.ledger.last_seen import last_seen_at
from cloudgpu.ledger.samples.store import SampleStore
from cloudgpu.providers.abilities import ReportsActivity

Run = tuple[float, float]
JOULES_OF_A_KWH = 3_600_000


@dataclass(frozen=True, slots=True)
class OwnMachine:
    """One machine of the user's own, in the hours that were asked for.

    `hours` it was in use, `gpu_hours` of them its GPUs were at work; `card_hours` are those of each GPU that was, in
    the `counted_hours` in which they were counted. `kwh` is what its GPUs drew while it used them,
    `watts` their mean in the `measured_hours` in which they did: of the GPUs alone, not of the computer around them.
    None where nobody measured.
    """

    id: str
    name: str | None
    hours: float
    gpu_hours: float
    unknown_hours: float
    kwh: float | None
    watts: float | None
    measured_hours: float
    card_hours: float = 0.0
    counted_hours: float = 0.0


def utilization_of(
    session: Session,
    machines: Iterable[Machine],
    uses: Iterable[tuple[str, Usage]],
    since: datetime | None = None,
    until: datetime | None = None,
) -> dict[str, tuple[Hour, ...]]:
    """Return the billed hours of each machine that ran in [since, until), by the id of its row, oldest first.

    `uses` are what has ended, as the ledger's `uses` gives it; what still runs stands in the rows, and runs until now.
    By the usual thresholds, whatever a machine's policy says. Asks nobody.
    """
    now, machines = session.clock(), list(machines)
    begin, end = 0.0 if since is None else since.timestamp(), min(now, until or now).timestamp()
    runs, hears = _runs(machines, uses, now.timestamp()), _Hears(session)
    found: dict[str, tuple[Hour, ...]] = {}
    for machine in machines:
        inside = [
            (max(first, begin), min(last, end)) for first, last in runs[machine.id] if first < end and last > begin
        ]
        if inside:
            spans = SampleStore(session.home.samples, machine.id).utilization(min(inside)[0], end)
            latest = max(runs[machine.id])
            word = hears.word(machine, latest) if latest[0] < end and machine.last_active else None
            found[machine.id] = hours(spans, inside, word)
    return found


def own_machines(machines: Iterable[Machine], busy_hours: Mapping[str, Sequence[Hour]]) -> tuple[OwnMachine, ...]:
    """Return the user's own machines (provider `ssh`) that ran in these hours (of `busy_hours`), in their order.

    Without those of `local`, which share the computer that cloudgpu runs on and stand for no machine that was bought.
    """
    mine = (machine for machine in machines if machine.provider == OWN_PROVIDER and machine.id in busy_hours)
    return tuple(_own(machine, busy_hours[machine.id]) for machine in mine)


def _own(machine: Machine, hours: Sequence[Hour]) -> OwnMachine:
    measured = [one.joules for one in hours if one.joules is not None]
    joules, drawing = sum(measured), sum(one.drawing for one in hours)
    return OwnMachine(
        id=machine.id,
        name=machine.name,
        hours=sum(one.gpu + one.used for one in hours) / HOUR,
        gpu_hours=sum(one.gpu for one in hours) / HOUR,
        unknown_hours=sum(one.unknown for one in hours) / HOUR,
        kwh=joules / JOULES_OF_A_KWH if measured else None,
        watts=joules / drawing if drawing else None,
        measured_hours=drawing / HOUR,
        card_hours=sum(one.cards for one in hours) / HOUR,
        counted_hours=sum(one.counted for one in hours) / HOUR,
    )


def _runs(machines: Iterable[Machine], uses: Iterable[tuple[str, Usage]], now: float) -> dict[str, list[Run]]:
    """Return when each machine was billed, by its row's id; what still runs, until now."""
    found: dict[str, list[Run]] = {machine.id: [] for machine in machines}
    open_uses = ((machine.id, use) for machine in machines for use in machine.open_usage)
    for subject, use in (*uses, *open_uses):
        if subject in found and use.resource == Resource.INSTANCE:
            end = now if use.end is None else from_iso(use.end).timestamp()
            found[subject].append((from_iso(use.begin).timestamp(), end))
    return found


@dataclass(slots=True)
class _Hears:
    """Knows what the ledger heard from machines themselves, and until when that held."""

    session: Session
    known: dict[str, bool] = field(default_factory=dict)

    def word(self, machine: Machine, run: Run) -> ActivityReport | None:
        """Return a machine's word of its latest run; None where a sync does not bring it, or it is of another run.

        The ledger has it to a quarter of an hour. While a machine runs, each sync that saw it brought its word.
        That its agent lived to say more is taken for granted: use after an agent's death is idle here.
        """
        active = from_iso(not_none(machine.last_active))
        if active.timestamp() < run[0] or not self._in_a_look(machine.account):
            return None
        seen = last_seen_at(self.session.ledger, machine) if machine.billed else None
        at = run[1] if seen is None else from_iso(seen).timestamp()
        return ActivityReport((active + NEWS_OF_ACTIVITY).timestamp(), min(at, run[1]))

    def _in_a_look(self, account: str) -> bool:
        if account not in self.known:
            try:
                self.known[account] = not isinstance(self.session.provider(account), ReportsActivity)
            except CloudgpuError:  # it is configured no more
                self.known[account] = False
        return self.known[account]
