"""Gives a machine the data volume that it was launched with, after each start and launch."""

from __future__ import annotations

from cloudgpu.control.access.reach import wait_until_running
from cloudgpu.control.records.named_resources import record_resources
from cloudgpu.control.session.session import Session
from cloudgpu.core.launch.attempt import setup_from_json
from cloudgpu.core.model.instances import TAG_LEDGER, TAG_OWNER, TAG_PROJECT
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.values.naming import tag_value
from cloudgpu.providers.abilities import HasVolumes


def with_volume(session: Session, machine: Machine) -> Machine:
    """Attach the volume of the machine's setup, made where it is not there yet; return the machine. Idempotent.

    Waits until the machine runs, for only then can it be attached. A machine without a volume is returned at once.
    Raises InvalidRequest for a volume that cannot be had, Unreachable for a machine that ended meanwhile.
    """
    volume = setup_from_json(machine.setup.record()).volume if machine.setup else None
    provider = session.provider_of(machine)
    if volume is None or not isinstance(provider, HasVolumes):
        return machine
    session.report(f"{machine.name}: attaching the volume {volume.name} as soon as it runs")
    machine = wait_until_running(session, machine)
    tags = {
        TAG_LEDGER: session.ledger.id,
        TAG_OWNER: tag_value(machine.owner or ""),
        TAG_PROJECT: tag_value(machine.project or ""),
    }
    attached = provider.attach(not_none(machine.provider_id), volume, tags)
    record_resources(session, [attached])
    session.report(f"{machine.name}: the volume {volume.name} ({attached.size_gb} GB) is attached; down keeps it")
    return machine
