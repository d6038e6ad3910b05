"""Ends what a refused launch left at a cloud when nobody lived to hear the refusal: it never ran, and its disk costs.

It is told from a stopped machine of the user's in two ways at once. The ledger has not settled its launch, so nobody
was ever given it; and the provider says that it never ran, so nothing can be on it.
"""

from __future__ import annotations

import platform
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cloudgpu.control.inventory.shared import delete_shared_resources
from cloudgpu.control.inventory.stop_proof import request_until_confirmed
from cloudgpu.control.team.authorization import by
from cloudgpu.core.events.launch_lines import launch_settled
from cloudgpu.core.events.machine_lines import requested
from cloudgpu.core.events.observations import instance_observed, instance_vanished
from cloudgpu.core.model.instances import State
from cloudgpu.core.model.machine import not_none
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError, InstanceNotFound
from cloudgpu.ledger import saved_calls as saved

if TYPE_CHECKING:
    from datetime import datetime

    from cloudgpu.control.session.session import Session
    from cloudgpu.core.events.log import Draft
    from cloudgpu.core.model.instances import Instance
    from cloudgpu.core.model.machine import Machine

WHY = "its launch was refused, and left it"


def refused_launch_events(session: Session, machine: Machine, instance: Instance, now: datetime) -> list[Draft]:
    """Return the lines of what a refused launch left: that it is there, since its disk costs, and is to end.

    It has stood still since it was made; since it was asked for, where the provider does not say when that was.
    """
    made, who = instance.launched_at or from_iso(machine.intended_at), by(session, machine, "end")
    still = replace(instance, launched_at=made, since=made)
    return [
        launch_settled(machine.id, not_none(machine.token), "made", "found stopped: a refused launch has left it", now),
        instance_observed(still, now, machine=machine),
        requested("terminate", machine.id, WHY, now, host=platform.node(), who=who, failed=True),
    ]


def request_end(session: Session, id: str) -> None:  # noqa: A002
    """Ask once for the end of what a refused launch left, and write it down where that is proved at once.

    Raises nothing of the provider's: the next sync, and the reaper, go on with what is not proved.
    """
    machine = session.ledger.machine(id)
    if machine is None:
        return
    with suppress(CloudgpuError):
        provider, known = session.provider_of(machine), not_none(machine.provider_id)
        provider.get(known)  # what `get` has shown is gone once it does not
        provider.terminate(known)
        try:
            provider.get(known)
        except InstanceNotFound:
            if provider.token_rule.gone_proves_after is not None:
                proof = "unknown to get after the end was asked"
                session.ledger.append([instance_vanished(machine.id, known, proof, session.clock())])


def end_remnant(session: Session, machine: Machine, instance: Instance, now: datetime) -> Machine:
    """End what a refused launch left, prove that it is gone, and return the machine as it is then.

    The caller holds the launch lock. Raises StopUnproved where the proof does not come: the reaper goes on with it.
    """
    session.report(f"{machine.name}: its launch was refused and left a stopped machine; ending it")
    machine = session.ledger.append_to(machine, refused_launch_events(session, machine, instance, now))
    provider = session.provider_of(machine)
    try:
        there = provider.get(instance.id).state is not State.TERMINATED
    except CloudgpuError:
        there = False
    ask = partial(provider.terminate, instance.id)
    machine = request_until_confirmed(
        session, machine, lambda seen: bool(seen.terminated_at), ask, seen_running=there, seen_by_get=there
    )
    saved.delete(session.home.attempts, not_none(machine.token))
    return delete_shared_resources(session, machine)
