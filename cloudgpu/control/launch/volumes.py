"""Gives a machine the data volume that it was launched with, after each start and launch, if it is theirs to use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.control.access.reach import wait_until_running
from cloudgpu.control.records.named_resources import named_resources, write
from cloudgpu.control.session.identity import by_account
from cloudgpu.control.team.law import check_may_use
from cloudgpu.core.launch.attempt import setup_from_json
from cloudgpu.core.model.instances import TAG_LEDGER, TAG_OWNER, TAG_PROJECT
from cloudgpu.core.model.machine import Machine, fact
from cloudgpu.core.model.resources import Kind
from cloudgpu.core.values.naming import tag_value
from cloudgpu.providers.abilities import HasVolumes

if TYPE_CHECKING:
    from cloudgpu.control.launch.candidates import Candidates
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.model.offers import Requirements


def check_volume(session: Session, candidates: Candidates) -> None:
    """Raise RoleNeeded where the volume of a launch is there and somebody else's, as far as the ledger knows it."""
    volume = candidates.identity.setup.volume
    if volume is None:
        return
    rows = [row for row in named_resources(session.ledger) if row.name == volume.name and row.state == Kind.VOLUME]
    known = by_account(session, rows)[0]
    for one in candidates.each:
        check_may_use(session, [row for row in known.get(one.account, ()) if _may_lie(row, one.request.want)])


def _may_lie(row: Machine, want: Requirements) -> bool:
    same = [(want.region, row.region), (want.zone, row.zone)]
    return all(wished == known for wished, known in same if wished and known)


def with_volume(session: Session, row: Machine) -> Machine:
    """Attach the volume of the machine's setup, made where it is not there yet; return the row. Idempotent.

    Waits until the machine runs, for only then can it be attached. A machine without a volume is returned at once.
    Raises InvalidRequest for a volume that cannot be had, Unreachable for a machine that ended meanwhile.
    """
    volume = setup_from_json(row.setup.record()).volume if row.setup else None
    provider = session.provider_of(row)
    if volume is None or not isinstance(provider, HasVolumes):
        return row
    session.tell(f"{row.name}: attaching the volume {volume.name} as soon as it runs")
    row = wait_until_running(session, row)
    tags = {
        TAG_LEDGER: session.ledger.id,
        TAG_OWNER: tag_value(row.owner or ""),
        TAG_PROJECT: tag_value(row.project or ""),
    }
    attached = provider.attach(fact(row.provider_id), volume, tags)
    write(session, [attached])
    session.tell(f"{row.name}: the volume {volume.name} ({attached.size_gb} GB) is attached; down keeps it")
    return row
