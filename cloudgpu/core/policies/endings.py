"""How a machine can end: the gentlest way that its provider has, and what its policy agreed to lose by it. Pure.

What a provider can do is a fact on the row since the launch: `stoppable` (it can be stopped, and started again),
`parkable` (its disk can be kept as an image while the machine ends). None: nobody knows, and the gentler way is tried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.core.model.facts import MachineSetup
from cloudgpu.core.model.machine import Endable, EndSubject, Machine, command_name
from cloudgpu.core.policies.policy import Do, Policy, Unpausable
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.core.model.launch import Setup
    from cloudgpu.core.model.offers import Available

ERASES = "it is terminated then, and what is on its disk is deleted"
NOTHING_GENTLER = "it can be neither stopped nor kept as an image"


def gentlest_ending(row: Endable) -> Do:
    """Return the gentlest end of this machine that its provider can carry out."""
    if row.stoppable is not False:
        return Do.STOP
    return Do.PARK if row.parkable is not False else Do.TERMINATE


def agreed_ending(row: Endable, policy: Policy | None) -> Do | None:
    """Return how its lease, idle time and schedules end it; None: not at all, as that would delete its disk.

    The launch has settled whether the disk of a machine that cannot be stopped is to stay (`unpausable`). Where it is
    to stay and cannot, only `renew-until` and budgets end the machine.
    """
    end = gentlest_ending(row)
    if end is Do.STOP or keeps_disk(row, policy):
        return None if end is Do.TERMINATE else end
    return Do.TERMINATE


def at_last(row: Endable, policy: Policy | None) -> Do:
    """Return how renew-until ends it: as agreed, else in the only way there is."""
    return agreed_ending(row, policy) or Do.TERMINATE


def keeps_disk(row: Endable, policy: Policy | None) -> bool:
    """Say whether the disk of a machine that cannot be stopped is to stay: as its launch says, else its policy."""
    if row.setup is not None:
        return bool(row.setup.keep_disk)
    return policy is None or policy.unpausable is not Unpausable.TERMINATE


def is_spared(row: Endable, policy: Policy | None) -> bool:
    """Say whether its lease, idle time and schedules only warn, since they could only terminate it."""
    return agreed_ending(row, policy) is None


def only_warned(row: Endable, policy: Policy | None) -> bool:
    """Say whether idle time and schedules only warn: as its policy says, or since they could only terminate it."""
    by_policy = policy is not None and policy.only_warned(stoppable=row.stoppable is not False)
    return by_policy or is_spared(row, policy)


def of_offer(item: Available, setup: Setup) -> EndSubject:
    """Return of a machine that is to be launched what is asked for here of a row."""
    from cloudgpu.core.model.launch import setup_to_json

    return EndSubject(item.stoppable, item.parkable, MachineSetup.of(setup_to_json(setup)))


def check_stop(machine: Machine) -> None:
    """Raise InvalidRequest for a machine of which nothing can be kept, or of which its policy keeps nothing.

    Who types `stop` did not ask to lose what is on its disk: that is what `down` is for.
    """
    if machine.stoppable is not False or machine.terminated_at is not None:
        return
    why = None
    if gentlest_ending(machine) is Do.TERMINATE:
        why = f"cannot be stopped: {machine.provider} can neither stop it nor keep an image of its disk."
    elif machine.setup is not None and not machine.setup.keep_disk:
        why = f"cannot be stopped, and its policy {machine.policy} terminates what cannot be stopped."
    if why is not None:
        raise InvalidRequest(
            f"{machine.name} {why}",
            field="name",
            value=machine.name,
            next=f"Run: cloudgpu down {command_name(machine)} (it ends the machine and deletes its disk)",
        )
